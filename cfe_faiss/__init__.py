"""Counterfactual evidence for node classification, as a FAISS plug-in.

Given vectors of nodes (:func:`ks_vectors`) and the classes that a model predicts for them, an
evidence index finds the most similar nodes of other classes. The method is that of Qiu, Chen, Khan,
Zhao and Bonchi, "Finding Counterfactual Evidences for Node Classification", KDD 2025.
"""

from cfe_faiss.base import interrupts  # noqa: F401 - on the command line, Ctrl-C also ends imports

# isort: split
from importlib import import_module
from typing import TYPE_CHECKING, Any

from cfe_faiss.base import startup  # noqa: F401 - it loads the core, or raises a clear error, before other modules

# isort: split
from cfe_faiss import metrics
from cfe_faiss.attributes.constraints import Constraints
from cfe_faiss.files.format import (
    clone_index,
    deserialize_index,
    read_header,
    read_index,
    register,
    serialize_index,
    unregister,
    verify_index,
    write_index,
)
from cfe_faiss.graph.ks import ks_similarity, ks_vectors
from cfe_faiss.index.factory import IndexEvidencePreTransform, index_factory
from cfe_faiss.index.flat import IndexEvidenceFlat, IndexEvidenceIDMap2
from cfe_faiss.index.ivf import (
    IndexEvidenceIVF,
    IndexEvidenceIVFPQ,
    IndexEvidenceIVFScalarQuantizer,
)
from cfe_faiss.index.parameters import EvidenceParameters
from cfe_faiss.index.searching import EvidenceIndex
from cfe_faiss.pairs import Pairs, evidence_pairs, global_evidence

if TYPE_CHECKING:
    from cfe_faiss.base.extras import show_versions
    from cfe_faiss.curve import similarity_curve
    from cfe_faiss.finder import EvidenceFinder, InputWarning
    from cfe_faiss.graph.metapath import metapath_graph
    from cfe_faiss.graph.updates import KSVectors
    from cfe_faiss.neighbors import EvidenceNeighbors, EvidenceTransformer
    from cfe_faiss.store import EvidenceStore

__version__ = "0.2.0"

__all__ = [
    "Constraints",
    "EvidenceFinder",
    "EvidenceIndex",
    "EvidenceNeighbors",
    "EvidenceParameters",
    "EvidenceStore",
    "EvidenceTransformer",
    "IndexEvidenceFlat",
    "IndexEvidenceIDMap2",
    "IndexEvidenceIVF",
    "IndexEvidenceIVFPQ",
    "IndexEvidenceIVFScalarQuantizer",
    "IndexEvidencePreTransform",
    "InputWarning",
    "KSVectors",
    "Pairs",
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
    "register",
    "serialize_index",
    "show_versions",
    "similarity_curve",
    "unregister",
    "verify_index",
    "write_index",
]

_LOADED_AT_FIRST_USE = {
    "EvidenceFinder": "finder",
    "EvidenceNeighbors": "neighbors",
    "EvidenceStore": "store",
    "EvidenceTransformer": "neighbors",
    "InputWarning": "finder",
    "KSVectors": "graph.updates",
    "metapath_graph": "graph.metapath",
    "show_versions": "base.extras",
    "similarity_curve": "curve",
}
_MODULES = "audit", "datasets", "mining", "models", "scale"

if not TYPE_CHECKING:  # with this function a type checker would accept any name

    def __getattr__(name: str) -> Any:
        if name in _MODULES:
            return import_module(f"cfe_faiss.{name}")
        if name not in _LOADED_AT_FIRST_USE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"cfe_faiss.{_LOADED_AT_FIRST_USE[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
