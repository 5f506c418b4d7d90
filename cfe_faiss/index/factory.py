"""Indexes from a description string, in FAISS's grammar."""

import re

from cfe_faiss.checks import as_count
from cfe_faiss.index.flat import IndexEvidenceFlat
from cfe_faiss.index.ivf import IndexEvidenceIVF

_IVF = re.compile(r"EvidenceIVF(?P<nlist>\d+)(x(?P<partitions>\d+))?")


def index_factory(d: int, description: str) -> IndexEvidenceFlat | IndexEvidenceIVF:
    """Return a new, empty index.

    Parameters
    ----------
    d
        Length of the vectors.
    description
        ``"EvidenceFlat"`` for the exact index; ``"EvidenceIVF<nlist>,Flat"`` or
        ``"EvidenceIVF<nlist>x<partitions>,Flat"`` for the inverted file.

    Raises
    ------
    TypeError, ValueError
        If the description is not one of these; the message names the part that is wrong.

    Examples
    --------
    >>> index_factory(64, "EvidenceIVF1024x2,Flat")
    IndexEvidenceIVF(d=64, nlist=1024, partitions=2, nprobe=16, ntotal=0)
    """
    d = as_count("d", d)
    if not isinstance(description, str):
        raise TypeError(f"description must be a string, got {description!r}")
    head, *codec = description.split(",")
    if head == "EvidenceFlat":
        if codec:
            raise ValueError(f"description 'EvidenceFlat' takes no further part, got {','.join(codec)!r}")
        return IndexEvidenceFlat(d)
    match = _IVF.fullmatch(head)
    if match is None:
        raise ValueError(
            "description must begin with EvidenceFlat, EvidenceIVF<nlist> or EvidenceIVF<nlist>x<partitions>, "
            f"got {head!r}"
        )
    if codec != ["Flat"]:
        raise ValueError(f"description must end in ',Flat' after {head!r}, got {','.join(codec)!r}")
    return IndexEvidenceIVF(d, int(match["nlist"]), int(match["partitions"] or 1))
