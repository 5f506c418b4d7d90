"""Blocks of rows against brute force: the same ids and the same bits, however rows were screened and in what order."""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from reference import PADDING, cosine, unit
from stored_rows import rows_in

from cfe_faiss import _native
from cfe_faiss._native import Blocks, Rows
from cfe_faiss.rows.codecs import FLAT

Found = tuple[NDArray[np.float32], NDArray[np.int64]]
RowsOf = Callable[[np.random.Generator, int, int], NDArray[np.float32]]

ELEMENTS = ["float", "byte"] if _native.has_bytes() else ["float"]

elements = pytest.mark.parametrize("element", ELEMENTS)
seeds = st.integers(0, 2**32 - 1)


class Case(NamedTuple):
    """Rows in lists, groups of queries, and the lists that each group probes, (groups, t), -1 for none.

    ``sizes`` are those of the lists of the storage; ``references`` are the rows of the lists that follow. With a
    ``prefix``, rows of bytes are rotated.
    """

    Y: NDArray[np.float32]
    labels: NDArray[np.int32]
    ids: NDArray[np.int64]
    sizes: list[int]
    references: list[NDArray[np.int32]]
    X: NDArray[np.float32]
    own: NDArray[np.int32]
    starts: NDArray[np.int64]
    lists: NDArray[np.int64]
    k: int
    prefix: int = 0

    def eligible_rows(self) -> Iterator[NDArray[np.int64]]:
        """Yield the rows that each query may find, each once."""
        ends = np.cumsum(self.sizes)
        members = [*map(slice, ends - self.sizes, ends), *self.references]
        for (first, last), lists in zip(pairwise(self.starts), self.lists, strict=True):
            probed = np.zeros(len(self.Y), bool)
            for j in lists[lists >= 0]:
                probed[members[j]] = True
            rows = np.flatnonzero(probed & (self.labels >= 0))
            for own in self.own[first:last]:
                yield rows[self.labels[rows] != own]


def grid(rng: np.random.Generator, n: int, d: int) -> NDArray[np.float32]:
    """Return rows shorter than 1 whose products are exact and often equal."""
    spread = rng.integers(0, 9)
    rows: NDArray[np.float32] = (rng.integers(-spread, spread + 1, (n, d)) / (16 * d)).astype(
        np.float32
    )
    return rows


def copies(rng: np.random.Generator, n: int, d: int) -> NDArray[np.float32]:
    """Return many copies of a few rows."""
    few = grid(rng, 4, d)
    return few[rng.integers(0, rng.integers(1, 5), n)]


def close(rng: np.random.Generator, n: int, d: int) -> NDArray[np.float32]:
    """Return unit rows around one direction."""
    return unit(1 + rng.choice([1e-6, 1e-3, 0.1, 10]) * rng.normal(size=(n, d)))


def equal(rng: np.random.Generator, n: int, d: int) -> NDArray[np.float32]:
    """Return unit rows that are often equal, equal but for the last bits, or opposite."""
    few = unit(np.random.default_rng(d).normal(size=(4, d)))
    near = few * (1 + rng.choice([-1, 0, 1], (4, d)) * np.float32(2.0**-23))
    return np.concatenate([few, few, near.astype(np.float32), -few])[rng.integers(0, 16, n)]


def case_of(
    rng: np.random.Generator,
    rows_of: RowsOf,
    d: int,
    k: int,
    sizes: list[int],
    groups: list[int],
    *,
    mixed: bool,
    classes: int = 3,
    references: int = 0,
) -> Case:
    n, nq, number = sum(sizes), sum(groups), len(sizes) + references
    labels = rng.integers(-1, classes, n).astype(np.int32)
    for part in np.split(labels, np.cumsum(sizes))[:-1]:
        part.sort()
    later = [
        np.flatnonzero(rng.random(n) < rng.choice([0.1, 0.9])).astype(np.int32)
        for _ in range(references)
    ]
    own = (
        rng.integers(0, classes + 1, nq)
        if mixed
        else np.repeat(rng.integers(0, classes + 1, len(groups)), groups)
    )
    lists = np.array([rng.permutation(number) for _ in groups], np.int64).reshape(
        len(groups), number
    )
    lists[rng.random(lists.shape) < 0.2] = -1
    return Case(
        Y=np.ascontiguousarray(rows_of(rng, n, d)),
        labels=labels,
        ids=rng.choice(2**62, n, replace=False).astype(np.int64),
        sizes=sizes,
        references=later,
        X=np.ascontiguousarray(rows_of(rng, nq, d)),
        own=own.astype(np.int32),
        starts=np.append(0, np.cumsum(groups)).astype(np.int64),
        lists=lists,
        k=k,
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(seeds))
    case = case_of(
        rng,
        draw(st.sampled_from([grid, copies, close, equal])),
        draw(st.integers(1, 70)),
        draw(st.sampled_from([1, 2, 3, 10, 40, 41, 128, 129, 150])),
        draw(st.lists(st.sampled_from([0, 1, 15, 16, 17, 40, 150]), min_size=1, max_size=8)),
        draw(st.lists(st.integers(1, 40), max_size=4)),
        mixed=draw(st.booleans()),
        classes=draw(st.integers(1, 4)),
        references=draw(st.integers(0, 3)),
    )
    return case._replace(prefix=4 * draw(st.integers(0, 4)))


def rows_object(case: Case, codes: NDArray[Any], codec: int = FLAT) -> Rows:
    """Return the rows of a case as they are kept in ``codes``, (n, row size); both have to live."""
    borders = np.cumsum(case.sizes)[:-1]
    lists = [part.view(np.uint8) for part in np.split(codes, borders)]
    return rows_in(lists, np.split(case.ids, borders), case.labels, d=case.X.shape[1], codec=codec)[
        0
    ]


@cache
def rotation_of(d: int) -> NDArray[np.float32]:
    return np.linalg.qr(np.random.default_rng(d).normal(size=(d, d)))[0].astype(np.float32)


def blocks_of(case: Case, element: str, rows: Rows | None = None, **changed: Any) -> Blocks:
    d = case.X.shape[1]
    rotation, prefix = np.empty((0, d), np.float32), 0
    if element == "byte" and case.prefix:
        rotation = rotation_of(d)
        prefix = min(case.prefix, d + -d % 4)
    ends = np.cumsum([0, *(len(rows) for rows in case.references)]).astype(np.int64)
    given = {
        "rounding_error": (d + 16) * 2.0**-24,
        "references": np.concatenate([np.empty(0, np.int32), *case.references]),
        "reference_starts": ends if case.references else ends[:0],
        "center": np.empty(0, np.float32),
        "wanted": np.empty(0, bool),
        "allowed": np.empty(0, bool),
        "rotation": rotation,
        "prefix": prefix,
        "threads": 1,
    }
    return Blocks(rows_object(case, case.Y) if rows is None else rows, element, **(given | changed))


def empty(case: Case) -> Found:
    return np.full((len(case.X), case.k), 7, np.float32), np.full(
        (len(case.X), case.k), 7, np.int64
    )


def search(
    case: Case,
    blocks: Blocks,
    found: Found | None = None,
    lists: NDArray[np.int64] | None = None,
    **options: Any,
) -> Found:
    D, I = empty(case) if found is None else found
    lists = case.lists if lists is None else np.ascontiguousarray(lists)
    blocks.search(case.X, case.own, case.starts, lists, np.arange(len(case.X)), D, I, **options)
    return D, I


def similarities(case: Case, q: int, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    return np.asarray(cosine(case.Y[rows], case.X[q]))


def ranked(scores: NDArray[np.float32], ids: NDArray[np.int64], k: int) -> Found:
    best = np.lexsort((ids, -scores))[:k]
    D, I = np.full(k, PADDING, np.float32), np.full(k, -1, np.int64)
    D[: len(best)], I[: len(best)] = scores[best], ids[best]
    return D, I


def assert_best(case: Case, found: Found) -> None:
    expected = empty(case)
    for q, rows in enumerate(case.eligible_rows()):
        expected[0][q], expected[1][q] = ranked(similarities(case, q, rows), case.ids[rows], case.k)
    assert_array_equal(found[1], expected[1])
    assert_array_equal(found[0], expected[0])


@elements
@given(cases(), seeds, st.integers(1, 4))
@settings(max_examples=3 * settings().max_examples)
def test_groups_find_the_best_of_their_lists(
    element: str, case: Case, seed: int, threads: int
) -> None:
    """Rows of several lists are found once, and results go where the order says."""
    nq, rng = len(case.X), np.random.default_rng(seed)
    order = rng.choice(2 * nq + 1, nq, replace=False)
    D, I = np.full((2 * nq + 1, case.k), 7, np.float32), np.full((2 * nq + 1, case.k), 7, np.int64)
    blocks = blocks_of(case, element, threads=threads)
    blocks.search(case.X, case.own, case.starts, case.lists, order, D, I)
    assert_best(case, (D[order], I[order]))
    others = np.setdiff1d(np.arange(2 * nq + 1), order)
    assert (D[others] == 7).all()
    assert (I[others] == 7).all()


@elements
@given(cases(), st.integers(1, 4))
def test_lists_may_come_a_few_at_a_time(element: str, case: Case, step: int) -> None:
    found = empty(case)
    blocks = blocks_of(case, element)
    for first in range(0, case.lists.shape[1], step):
        search(case, blocks, found, case.lists[:, first : first + step], resume=first > 0)
    assert_best(case, found)


@elements
@given(cases(), seeds)
def test_damaged_rows_are_never_found_and_others_always(
    element: str, case: Case, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    damaged = rng.random(len(case.Y)) < rng.choice([0.01, 0.1, 1])
    case.Y[damaged, rng.integers(0, case.Y.shape[1])] = rng.choice(
        [np.inf, -np.inf, np.nan, 3e38], damaged.sum()
    )
    found = search(case, blocks_of(case, element))
    assert_best(case._replace(labels=np.where(damaged, -1, case.labels).astype(np.int32)), found)


@elements
@given(cases(), seeds)
def test_damaged_queries_find_nothing(element: str, case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    damaged = rng.random(len(case.X)) < 0.3
    sound = case.X.copy()
    case.X[damaged, 0] = rng.choice([np.inf, -np.inf, np.nan, 3e38], damaged.sum())
    D, I = search(case, blocks_of(case, element))
    assert (I[damaged] == -1).all()
    assert (D[damaged] == PADDING).all()
    expected = search(case._replace(X=sound), blocks_of(case, element))
    assert_array_equal(I[~damaged], expected[1][~damaged])
    assert_array_equal(D[~damaged], expected[0][~damaged])


# By default, each pair of k and groups with one kind of rows.
FIRST_LISTS = [
    pytest.param(k, groups, rows_of, marks=[pytest.mark.slow] if (i + j + m) % 3 else [])
    for i, k in enumerate([1, 10, 40, 41, 128, 129])
    for j, groups in enumerate(
        [[1], [2], [3], [5], [8], [9], [16], [17], [40], [1, 17, 2, 9, 1, 4]]
    )
    for m, rows_of in enumerate([grid, copies, close])
]


@elements
@pytest.mark.parametrize(("k", "groups", "rows_of"), FIRST_LISTS)
def test_the_first_list_alone_may_have_more_than_the_first_blocks(
    element: str, rows_of: RowsOf, k: int, groups: list[int]
) -> None:
    rng = np.random.default_rng(k)
    for mixed in (False, True):
        case = case_of(rng, rows_of, 12, k, [40, 0, 64 * k + 21, 33], groups, mixed=mixed)
        lists = np.tile(np.array([-1, 1, 2, 3, -1, 0]), (len(groups), 1))
        assert_best(
            case._replace(lists=lists), search(case._replace(lists=lists), blocks_of(case, element))
        )


@elements
@given(
    st.sampled_from([grid, copies, close, equal]),
    st.lists(st.sampled_from([1, 2, 4, 5, 9, 16, 17, 40]), min_size=1, max_size=3),
    st.sampled_from([1, 2, 3, 10]),
    st.integers(0, 4),
    st.integers(-17, 17),
    st.booleans(),
    seeds,
)
def test_the_first_blocks_may_end_wherever_lists_end(
    element: str,
    rows_of: RowsOf,
    groups: list[int],
    k: int,
    before: int,
    more: int,
    mixed: bool,
    seed: int,
) -> None:
    rng, first = np.random.default_rng(seed), 2 * k
    few = rng.integers(1, 17, min(before, first - 1)).tolist()
    sizes = [*few, max(0, 16 * (first - len(few)) + more), 20, 33]
    case = case_of(rng, rows_of, 12, k, sizes, groups, mixed=mixed)
    case.labels[rng.random(len(case.labels)) < rng.choice([0, 0.5, 0.99])] = -1
    for part in np.split(case.labels, np.cumsum(sizes))[:-1]:
        part.sort()
    order = np.append(np.arange(len(sizes) - 1), -1)
    order = np.append(order, len(sizes) - 1)
    case = case._replace(
        lists=np.tile(order, (len(groups), 1)), own=(case.own + rng.choice([0, 9])).astype(np.int32)
    )
    assert_best(case, search(case, blocks_of(case, element)))


@elements
@pytest.mark.parametrize("size", [1, 2, 5, 17])
def test_rows_that_are_tied_with_the_last_are_distinguished_by_their_ids(
    element: str, size: int
) -> None:
    rng = np.random.default_rng(size)
    for k in (1, 10, 128, 140):
        case = case_of(rng, grid, 12, k, [32 * k + 50, 100], [size], mixed=True)
        case.Y[:] = case.Y[0]  # whatever is not found is tied with what is
        case.Y[rng.choice(len(case.Y), k // 2, replace=False)] = case.X[0]
        assert_best(case, search(case, blocks_of(case, element)))


@elements
def test_rows_may_have_odd_addresses(element: str) -> None:
    case = case_of(np.random.default_rng(0), close, 10, 5, [50, 60], [8, 3], mixed=False)
    room = np.empty(case.Y.nbytes + 1, np.uint8)
    odd = room[1 - room.ctypes.data % 2 :][: case.Y.nbytes].reshape(len(case.Y), -1)
    odd[:] = case.Y.view(np.uint8)
    assert odd.ctypes.data % 2 == 1
    assert_best(case, search(case, blocks_of(case, element, rows_object(case, odd))))


def test_rows_live_as_long_as_blocks() -> None:
    case = case_of(np.random.default_rng(0), close, 6, 4, [40, 30], [5], mixed=False)
    blocks = blocks_of(case, "float")  # its rows have no other name
    assert_best(case, search(case, blocks))


def test_an_unknown_element_is_refused() -> None:
    case = case_of(np.random.default_rng(0), close, 6, 4, [40, 30], [5], mixed=False)
    with pytest.raises(ValueError, match='element must be "float", "byte" or "bit", got "word"'):
        blocks_of(case, "word")


@pytest.mark.skipif(_native.has_bytes(), reason="bytes are offered here")
def test_bytes_are_refused_where_the_processor_does_not_multiply_them() -> None:
    case = case_of(np.random.default_rng(0), close, 6, 4, [40, 30], [5], mixed=False)
    with pytest.raises(ValueError, match="bytes"):
        blocks_of(case, "byte")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"own": np.zeros(4, np.int32)}, "labels and order"),
        ({"starts": np.array([0, 4])}, "starts"),
        ({"starts": np.array([0, 7, 5])}, "starts"),
        ({"lists": np.array([[0], [1]])}, "lists must have one row"),
        ({"lists": np.array([[2]])}, "lists must hold"),
        ({"lists": np.array([[-2]])}, "lists must hold"),
        ({"X": np.zeros((5, 3), np.float32)}, "d columns"),
    ],
)
def test_searches_that_do_not_fit_are_refused(changed: dict[str, Any], message: str) -> None:
    case = case_of(np.random.default_rng(0), close, 6, 4, [40, 30], [5], mixed=False)
    with pytest.raises(ValueError, match=message):
        search(case._replace(**changed), blocks_of(case, "float"))
