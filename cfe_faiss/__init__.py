"""Counterfactual evidence for node classification, as a FAISS plug-in.

Given vectors of nodes (:func:`ks_vectors`) and the classes that a model predicts for them, an evidence index finds the
most similar nodes that the model treats differently. The method is that of Qiu, Chen, Khan, Zhao and Bonchi, "Finding
Counterfactual Evidences for Node Classification", KDD 2025.
"""

from typing import TYPE_CHECKING, Any

from cfe_faiss.base import startup  # noqa: F401 - it loads the core, or says why not, before all else

# isort: split
from cfe_faiss import metrics
from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.base.versions import show_versions
from cfe_faiss.files.format import read_header, read_index, verify_index, write_index
from cfe_faiss.files.serialize import clone_index, deserialize_index, serialize_index
from cfe_faiss.finder import EvidenceFinder, InputWarning
from cfe_faiss.graph.ks import ks_similarity, ks_vectors
from cfe_faiss.graph.metapath import metapath_graph
from cfe_faiss.index.factory import index_factory
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.index.ivf_flat import IndexEvidenceIVF
from cfe_faiss.index.ivf_pq import IndexEvidenceIVFPQ
from cfe_faiss.index.ivf_sq import IndexEvidenceIVFScalarQuantizer
from cfe_faiss.index.parameters import EvidenceParameters
from cfe_faiss.pairs import Pairs, evidence_pairs, global_evidence
from cfe_faiss.store import EvidenceStore
from cfe_faiss.tuning import Tuning, tune

if TYPE_CHECKING:
    from cfe_faiss.neighbors import EvidenceNeighbors

__version__ = "0.2.0"

__all__ = [
    "Constraints",
    "EvidenceFinder",
    "EvidenceNeighbors",
    "EvidenceParameters",
    "EvidenceStore",
    "IndexEvidenceFlat",
    "IndexEvidenceIVF",
    "IndexEvidenceIVFPQ",
    "IndexEvidenceIVFScalarQuantizer",
    "InputWarning",
    "Pairs",
    "Tuning",
    "__version__",
    "clone_index",
    "deserialize_index",
    "evidence_pairs",
    "global_evidence",
    "index_factory",
    "ks_similarity",
    "ks_vectors",
    "metapath_graph",
    "metrics",
    "read_header",
    "read_index",
    "serialize_index",
    "show_versions",
    "tune",
    "verify_index",
    "write_index",
]

if not TYPE_CHECKING:  # a type checker would take it as leave to misspell every other name

    def __getattr__(name: str) -> Any:
        # It brings scikit-learn along, which those who do not use it should not wait for.
        if name == "EvidenceNeighbors":
            from cfe_faiss.neighbors import EvidenceNeighbors

            return EvidenceNeighbors
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
