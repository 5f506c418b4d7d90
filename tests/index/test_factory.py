import faiss
import pytest

import cfe_faiss as cfe


def test_descriptions() -> None:
    assert isinstance(cfe.index_factory(8, "EvidenceFlat"), cfe.IndexEvidenceFlat)
    index = cfe.index_factory(8, "EvidenceIVF32x3,Flat")
    assert isinstance(index, cfe.IndexEvidenceIVF)
    assert (index.d, index.nlist, index.partitions) == (8, 32, 3)
    assert cfe.index_factory(8, "EvidenceIVF32,Flat").partitions == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(("codec", "qtype"), [("SQ8", "QT_8bit"), ("SQfp16", "QT_fp16")])
def test_scalar_codecs(codec: str, qtype: str) -> None:
    index = cfe.index_factory(8, f"EvidenceIVF32x3,{codec}")
    assert isinstance(index, cfe.IndexEvidenceIVFScalarQuantizer)
    assert (index.d, index.nlist, index.partitions) == (8, 32, 3)
    assert index.sq.qtype == getattr(faiss.ScalarQuantizer, qtype)


@pytest.mark.parametrize("codec", ["PQ4,RFlat", "PQ4x8,RFlat", "PQ4,Refine(Flat)"])
def test_product_codes(codec: str) -> None:
    index = cfe.index_factory(8, f"EvidenceIVF32x3,{codec}")
    assert isinstance(index, cfe.IndexEvidenceIVFPQ)
    assert (index.d, index.nlist, index.partitions, index.pq.M, index.pq.nbits) == (8, 32, 3, 4, 8)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("IVF32,Flat", "begin with .* got 'IVF32'"),
        ("EvidenceIVF,Flat", "begin with .* got 'EvidenceIVF'"),
        ("EvidenceIVF8x,Flat", "begin with .* got 'EvidenceIVF8x'"),
        ("EvidenceIVF8", "go on with ',Flat', .* after 'EvidenceIVF8', got ''"),
        ("EvidenceIVF8,HNSW", "go on with ',Flat', .* after 'EvidenceIVF8', got 'HNSW'"),
        ("EvidenceIVF8,SQ4", "go on with ',Flat', .* got 'SQ4'"),
        ("EvidenceIVF8,Flat,RFlat", "must end after 'EvidenceIVF8,Flat', got 'RFlat'"),
        ("EvidenceIVF8,SQ8,", "must end after 'EvidenceIVF8,SQ8', got ''"),
        ("EvidenceIVF8,PQ4", "end in ',RFlat' after 'EvidenceIVF8,PQ4', since .* got ''"),
        ("EvidenceIVF8,PQ4,RSQ8", "end in ',RFlat' after 'EvidenceIVF8,PQ4', since .* got 'RSQ8'"),
        ("EvidenceIVF8,PQ4,RFlat,Flat", "end in ',RFlat' .* got 'RFlat,Flat'"),
        ("EvidenceIVF8,PQ3,RFlat", "'PQ3' .* divides d = 8, got 3"),
        ("EvidenceIVF8,PQ0,RFlat", "'PQ0' .* divides d = 8, got 0"),
        ("EvidenceIVF8,PQ4x4,RFlat", "'PQ4x4' .* parts of 8 bits, as in 'PQ4', got 4"),
        ("EvidenceFlat,Flat", "no further part, got 'Flat'"),
        ("EvidenceIVF0,Flat", "nlist must be at least 1, got 0"),
        ("", "begin with .* got ''"),
    ],
)
def test_errors_point_at_the_part_that_is_wrong(description: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cfe.index_factory(8, description)


def test_a_description_is_a_string() -> None:
    with pytest.raises(TypeError, match="description must be a string, got 7"):
        cfe.index_factory(8, 7)  # type: ignore[arg-type]
