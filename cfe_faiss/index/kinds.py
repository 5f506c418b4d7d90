"""The kinds of evidence indexes."""

from typing import TypeAlias

from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.index.ivf_flat import IndexEvidenceIVF
from cfe_faiss.index.ivf_pq import IndexEvidenceIVFPQ
from cfe_faiss.index.ivf_sq import IndexEvidenceIVFScalarQuantizer

InvertedFile: TypeAlias = IndexEvidenceIVF | IndexEvidenceIVFScalarQuantizer | IndexEvidenceIVFPQ
EvidenceIndex: TypeAlias = IndexEvidenceFlat | InvertedFile
