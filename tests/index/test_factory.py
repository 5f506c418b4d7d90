from typing import Any

import faiss
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import clustered, with_rows

import cfe_faiss as cfe
from cfe_faiss.index.factory import IndexEvidencePreTransform

RAW, LABELS = clustered(600, 16, 3)


def test_descriptions() -> None:
    assert isinstance(cfe.index_factory(8, "EvidenceFlat"), cfe.IndexEvidenceFlat)
    assert isinstance(cfe.index_factory(8, "IDMap2,EvidenceFlat"), cfe.IndexEvidenceIDMap2)
    index = cfe.index_factory(8, "EvidenceIVF32x3,Flat")
    assert isinstance(index, cfe.IndexEvidenceIVF)
    assert (index.d, index.nlist, index.partitions) == (8, 32, 3)
    assert cfe.index_factory(8, "EvidenceIVF32,Flat").partitions == 1


@pytest.mark.parametrize("codec", ["Flat", "SQ8", "SQfp16", "PQ4,RFlat"])
def test_the_number_of_lists_may_be_chosen_by_training(codec: str) -> None:
    index = cfe.index_factory(16, f"EvidenceIVFautox2,{codec}")
    assert (index.nlist, index.partitions) == (0, 2)
    index.train(RAW)
    assert index.nlist == 96


@pytest.mark.parametrize(
    ("description", "links"), [("_HNSW8", 8), ("_HNSW", 32), ("x2_HNSW16", 16)]
)
def test_a_graph_of_the_centroids_serves_plain_searches(description: str, links: int) -> None:
    parts = description.partition("_")[0]
    index, flat = (
        cfe.index_factory(16, f"EvidenceIVF12{graph},Flat") for graph in (description, parts)
    )
    assert faiss.downcast_index(index.quantizer).hnsw.nb_neighbors(1) == links
    for one in (index, flat):
        one.train(RAW)
        one.add_with_labels(RAW, LABELS)
    assert faiss.downcast_index(index.quantizer).ntotal == 12
    assert (index.search(RAW, 1)[1][:, 0] == np.arange(600)).all()
    assert_array_equal(index.search_stored(k=3)[1], flat.search_stored(k=3)[1])
    copy = cfe.clone_index(index)
    del index
    assert type(faiss.downcast_index(copy.quantizer)) is faiss.IndexHNSWFlat
    assert (copy.search(RAW, 1)[1][:, 0] == np.arange(600)).all()


@pytest.mark.parametrize(
    "rest", ["EvidenceFlat", "EvidenceIVF12,Flat", "EvidenceIVFauto,SQ8", "EvidenceIVF9,PQ4,RFlat"]
)
@pytest.mark.parametrize("transforms", ["PCA8,", "L2norm,", "PCAR8,L2norm,", "Pad32,"])
def test_transforms_come_first(transforms: str, rest: str) -> None:
    index = cfe.index_factory(16, transforms + rest)
    stock = faiss.index_factory(16, f"{transforms}Flat", faiss.METRIC_INNER_PRODUCT)
    stock.train(RAW)
    if "PCA" in transforms:
        with pytest.raises(ValueError, match="must be trained"):
            index.search_evidence(RAW[:1], [0], 1)
    index.train(RAW)
    index.add_with_labels(RAW, LABELS)
    assert isinstance(index, IndexEvidencePreTransform)
    assert isinstance(index, faiss.IndexPreTransform)
    X = RAW
    for number in range(stock.chain.size()):
        X = faiss.downcast_VectorTransform(stock.chain.at(number)).apply(X)
    assert (index.d, index.evidence.d, index.ntotal) == (16, X.shape[1], 600)
    flat = with_rows(cfe.IndexEvidenceIDMap2(X.shape[1]), X, LABELS)
    D, I = index.search_evidence(RAW[:40], LABELS[:40], 5, exact=True)
    expected = flat.search_evidence(X[:40], LABELS[:40], 5)
    if "SQ8" not in rest:
        assert_array_equal(I, expected[1])
    assert_allclose(D, expected[0], atol=0.02 if "SQ8" in rest else 1e-6)
    for found, wanted in zip(
        index.evidence.search_stored(range(40), 5, exact=True), (D, I), strict=True
    ):
        if "SQ8" not in rest:
            assert_allclose(found, wanted, atol=1e-6)
    params = cfe.EvidenceParameters(labels=LABELS[:40], exact=True)
    assert_array_equal(index.search(RAW[:40], 5, params=params)[1], I)
    assert_array_equal(index.search(RAW[:5], 1)[1], index.evidence.search(X[:5], 1)[1])
    lims = index.range_search_evidence(RAW[:3], LABELS[:3], D[:3, 0].min())[0]
    assert (np.diff(lims) >= 1).sum() >= 1
    strict = index.range_search(RAW[:3], D[:3, 0].min(), params=cfe.EvidenceParameters(LABELS[:3]))[
        0
    ]
    assert strict[-1] == lims[-1] - 1


def test_changes_behind_transforms() -> None:
    index = cfe.index_factory(16, "PCA8,IDMap2,EvidenceFlat")
    index.train(RAW)
    index.add(RAW[:10])
    index.add_with_ids(RAW[10:20], np.arange(100, 110))
    index.add_with_labels(RAW[20:30], LABELS[20:30])
    assert (index.ntotal, index.evidence.members().ids[-1]) == (30, 119)
    assert index.remove_ids([0, 100]) == 2
    index.reset()
    assert index.ntotal == 0
    with pytest.raises(TypeError, match=r"index .*got IndexEvidencePreTransform; write index"):
        cfe.write_index(index, "unused")
    assert "transforms=['PCAMatrix'], evidence=IndexEvidenceIDMap2(d=8" in repr(index)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("Nothing,EvidenceFlat", "transforms of FAISS, got 'Nothing,'"),
        ("IVF10,EvidenceFlat", "transforms of FAISS, got 'IVF10,'"),
        ("PCA8,EvidenceFlt", "begin with .* got 'EvidenceFlt'"),
        ("PCA8", "begin with .* got 'PCA8'"),
        ("EvidenceIVF8_HNSW0,Flat", "at least 2 links, got 0 in 'EvidenceIVF8_HNSW0'"),
        ("PCA8,EvidenceIVF8_HNSW1,Flat", "at least 2 links, got 1"),
    ],
)
def test_wrong_transforms_and_graphs_are_an_error(description: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cfe.index_factory(16, description)


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
        ("EvidenceIVF8,PQ3,RFlat", "M must divide d = 8, got 3"),
        ("EvidenceIVF8,PQ0,RFlat", "M must be at least 1, got 0"),
        ("EvidenceIVF8,PQ4x4,RFlat", "'PQ4x4' .* parts of 8 bits, as in 'PQ4', got 4"),
        ("EvidenceFlat,Flat", "no further part, got 'Flat'"),
        ("IDMap2,EvidenceFlat,Flat", "no further part, got 'Flat'"),
        ("IDMap2,EvidenceIVF8,Flat", "begin with .* got 'IDMap2'"),
        ("EvidenceIVF0,Flat", "nlist must be at least 1, got 0"),
        ("", "begin with .* got ''"),
    ],
)
def test_errors_point_at_the_part_that_is_wrong(description: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cfe.index_factory(8, description)


def test_a_description_is_a_string() -> None:
    with pytest.raises(TypeError, match="description must be a string, got 7"):
        cfe.index_factory(8, 7)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cfe.IndexEvidenceIDMap2(0), "d must be at least 1, got 0"),
        (lambda: cfe.IndexEvidenceIVF(4, 0), "nlist must be at least 1, got 0"),
        (lambda: cfe.IndexEvidenceIVF(4, "many"), "nlist .*'auto', got 'many'"),
        (lambda: cfe.IndexEvidenceIVF(4, 5, 0), "partitions .*got 0"),
        (lambda: cfe.IndexEvidenceIVF(4, 5, theta=2.0), "theta must lie in"),
        (lambda: cfe.IndexEvidenceIVF(4, 5, routing="fast"), "routing must be .*got 'fast'"),
        (lambda: cfe.IndexEvidenceIVFPQ(10, 4, 3), "M must divide d = 10, got 3"),
        (lambda: cfe.IndexEvidenceIVFPQ(10, 4, 0), "M must be at least 1, got 0"),
        (lambda: cfe.IndexEvidenceIVFPQ(10, 4, 2, k_factor=0.5), "k_factor .*got 0.5"),
        *(
            (
                lambda q=q: cfe.IndexEvidenceIVFScalarQuantizer(4, 2, qtype=q),
                "qtype must be QT_8bit",
            )
            for q in (faiss.ScalarQuantizer.QT_4bit, "SQ8", None)
        ),
    ],
)
def test_constructors_name_what_they_do_not_take(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
