import pytest

import cfe_faiss as cfe


def test_descriptions() -> None:
    assert isinstance(cfe.index_factory(8, "EvidenceFlat"), cfe.IndexEvidenceFlat)
    index = cfe.index_factory(8, "EvidenceIVF32x3,Flat")
    assert isinstance(index, cfe.IndexEvidenceIVF)
    assert (index.d, index.nlist, index.partitions) == (8, 32, 3)
    assert cfe.index_factory(8, "EvidenceIVF32,Flat").partitions == 1  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("IVF32,Flat", "begin with .* got 'IVF32'"),
        ("EvidenceIVF,Flat", "begin with .* got 'EvidenceIVF'"),
        ("EvidenceIVF8x,Flat", "begin with .* got 'EvidenceIVF8x'"),
        ("EvidenceIVF8", "end in ',Flat' .* got ''"),
        ("EvidenceIVF8,PQ4", "end in ',Flat' .* got 'PQ4'"),
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
