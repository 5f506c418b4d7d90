import faiss
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from reference import Stored, clustered, cosine, stored_vectors, top_pairs, with_rows

import cfe_faiss as cfe
from cfe_faiss.search import exact, join, tiles


def flat(stored: Stored) -> cfe.IndexEvidenceIDMap2:
    index = cfe.IndexEvidenceIDMap2(stored.X.shape[1])
    return with_rows(index, stored.X, stored.labels, stored.ids)


def labelled(X: NDArray[np.float32], labels: NDArray[np.int64]) -> cfe.IndexEvidenceIDMap2:
    return flat(Stored(X, labels, np.arange(len(X)), X, labels, 1))


def stored(index: cfe.IndexEvidenceIDMap2) -> NDArray[np.float32]:
    """Return a view of the vectors in FAISS's storage, (n, d)."""
    vectors = faiss.downcast_index(index.index)
    numbers = faiss.rev_swig_ptr(vectors.get_xb(), index.ntotal * index.d)
    return numbers.reshape(index.ntotal, index.d)


def small_blocks(index: cfe.IndexEvidenceIDMap2, rows: int = 6) -> join.JoinBlocks | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join, "_BLOCK", rows)
        return join.join_blocks_of(index.storage())


def pairs_at(blocks: join.JoinBlocks, threshold: float) -> list[tuple[int, int, np.float32]]:
    """Return all that the scans find, best first, ties by ids."""
    return listed(blocks.scans(), threshold)


def listed(scans: list[exact.Scan], threshold: float) -> list[tuple[int, int, np.float32]]:
    found = [
        (min(a, b), max(a, b), s)
        for find in scans
        for source, target, scores in find(lambda: threshold)
        for a, b, s in zip(source.tolist(), target.tolist(), scores, strict=True)
    ]
    return sorted(found, key=lambda pair: (-pair[2], pair[0], pair[1]))


@given(
    stored_vectors(least=4, lowest_label=-1),
    st.floats(-1.125, 1.125, width=32),
    st.sampled_from([1, 1 << 18]),
)
def test_finds_every_pair_above_a_threshold_once(
    stored: Stored, threshold: float, buffer: int
) -> None:
    index = flat(stored)
    blocks = small_blocks(index)
    if blocks is None:
        assert (stored.labels >= 0).sum() < 2
        return
    expected = [pair for pair in top_pairs(stored) if pair[2] >= threshold]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join, "_BUFFER", buffer)
        assert pairs_at(blocks, threshold) == expected


@given(
    stored_vectors(least=4, lowest_label=-1),
    st.floats(-1.125, 1.125, width=32),
    st.integers(1, 3),
    st.data(),
)
def test_two_trees_have_the_pairs_of_their_rows(
    stored: Stored, threshold: float, classes: int, data: st.DataObject
) -> None:
    stored = stored._replace(labels=np.minimum(stored.labels, classes - 1))
    index = flat(stored)
    storage = index.storage()
    known = np.flatnonzero(storage.labels >= 0)
    chosen = np.array(
        data.draw(st.lists(st.booleans(), min_size=len(known), max_size=len(known))), bool
    )
    directions = join.directions_of(storage, known)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(join, "_BLOCK", 6)
        one, other = (
            join.join_blocks_along(storage, rows, directions) if len(rows) else None
            for rows in (known[chosen], known[~chosen])
        )
    if one is None or other is None:
        return
    sides = [set(storage.row_ids[blocks.rows].tolist()) for blocks in (one, other)]
    expected = [
        pair
        for pair in top_pairs(stored)
        if pair[2] >= threshold and (pair[0] in sides[0]) != (pair[1] in sides[0])
    ]
    scans = one.scans(other, threshold)
    assert listed(scans, threshold) == expected
    assert len(scans) <= one.number
    assert (one.cost(threshold, other) == 0) == (len(scans) == 0)
    rows, others = (
        blocks.rows[np.argsort(blocks.labels, kind="stable")] for blocks in (one, other)
    )
    for cut in (2, 768):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tiles, "CHUNK", cut)
            patch.setattr(tiles, "TILE", cut * cut)
            found = listed(exact.scans_of(tiles.tiles_between(storage, rows, others)), threshold)
            assert found == expected
            within = [
                pair
                for pair in top_pairs(stored)
                if pair[2] >= threshold and {pair[0], pair[1]} <= sides[0]
            ]
            assert listed(exact.all_pairs(storage, rows), threshold) == within


@pytest.mark.parametrize("d", [1, 3, 15, 16, 17, 64, 65, 150])
def test_sketches_bound_every_inner_product(d: int) -> None:
    X, labels = clustered(300, d, 3, seed=d)
    X[:20] = X[20]
    X[30:33] = 0
    index = labelled(X, labels)
    blocks = small_blocks(index)
    assert blocks is not None
    vectors = blocks.snapshot.rows(blocks.rows)[0].astype(np.float64)
    coarse, fine = blocks.coarse.astype(np.float64), blocks.fine.astype(np.float64)
    bound = coarse @ coarse.T
    finer = bound - np.outer(coarse[:, -1], coarse[:, -1]) + fine @ fine.T
    assert coarse.shape[1] == join.COARSE
    assert fine.shape[1] <= 50
    rounding = 4 * 2.0**-24
    assert (bound >= vectors @ vectors.T - rounding).all()
    assert (finer >= vectors @ vectors.T - rounding).all()
    if d <= 64:
        np.testing.assert_allclose(finer, vectors @ vectors.T, atol=1e-6)
    assert blocks.largest == pytest.approx((coarse**2).sum(axis=1).max(), abs=1e-12)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_equal_vectors(value: float) -> None:
    index = labelled(np.full((90, 5), value, np.float32), np.arange(90) % 2)
    blocks = small_blocks(index)
    assert blocks is not None
    expected = cosine(*index.storage().rows(np.array([0, 1]))[0])
    found = pairs_at(blocks, float(expected))
    wanted = [(i, j) for i in range(90) for j in range(i + 1, 90) if (i + j) % 2]
    assert [pair[:2] for pair in found] == wanted
    assert pairs_at(blocks, float(np.nextafter(expected, np.float32(2)))) == []


def test_rows_that_are_no_unit_vectors() -> None:
    X, labels = clustered(400, 12, 3)
    index = labelled(X, labels)
    rows, ids = stored(index), index.storage().ids()
    rows *= np.random.default_rng(0).uniform(0.5, 2, (400, 1)).astype(np.float32)
    S = cosine(rows[:, None], rows)
    blocks = small_blocks(index)
    assert blocks is not None
    for threshold in (0.5, 1.0, 2.5):
        i, j = np.nonzero(np.triu(S, 1) >= threshold)
        other = labels[ids[i]] != labels[ids[j]]
        expected = {
            (min(a, b), max(a, b))
            for a, b in zip(ids[i[other]].tolist(), ids[j[other]].tolist(), strict=True)
        }
        assert {pair[:2] for pair in pairs_at(blocks, threshold)} == expected


@pytest.mark.parametrize("damage", [np.nan, np.inf])
def test_damaged_rows_are_left_out_and_do_no_harm(damage: float) -> None:
    X, labels = clustered(300, 6, 3)
    good, damaged = labelled(X, labels), labelled(X, labels)
    rows, ids = stored(damaged), damaged.storage().ids()
    rows[[5, 70], 2] = damage
    blocks, others = small_blocks(damaged), small_blocks(good)
    assert blocks is not None
    assert others is not None
    expected = [
        pair for pair in pairs_at(others, 0.9) if not set(pair[:2]) & set(ids[[5, 70]].tolist())
    ]
    assert pairs_at(blocks, 0.9) == expected
    rows[1:] = damage
    assert small_blocks(damaged) is None
