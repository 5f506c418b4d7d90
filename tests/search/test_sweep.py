"""The sweep against brute force: the same ids and the same bits, whatever was screened and in whatever order."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from packed import Packed, packed, turning
from reference import PADDING, unit

from cfe_faiss.dot import pair_similarities
from cfe_faiss.lists import codecs as codes
from cfe_faiss.lists import scan
from cfe_faiss.search import batch, meet, panels, sweep
from cfe_faiss.search.meet import LANES

Found = tuple[NDArray[np.float32], NDArray[np.int64]]
Rows = Callable[[np.random.Generator, int, int], NDArray[np.float32]]

seeds = st.integers(0, 2**32 - 1)
in_bytes_or_floats = pytest.mark.parametrize(
    "in_bytes", [False, pytest.param(True, marks=pytest.mark.skipif(not meet.HAS_BYTES, reason="no VNNI"))]
)


class Case(NamedTuple):
    """Groups of queries, lists of stored rows, and which lists each group is to meet, (groups, t), -1 for none.

    Where there is a head, rows of bytes are turned, and so many words come before the others.
    """

    Y: NDArray[np.float32]
    labels: NDArray[np.int32]
    ids: NDArray[np.int64]
    members: list[NDArray[np.int64]]
    X: NDArray[np.float32]
    own: NDArray[np.int32]
    groups: NDArray[np.int64]
    lists: NDArray[np.int64]
    k: int
    once: bool
    head: int = 0


def grid(rng: np.random.Generator, n: int, d: int) -> NDArray[np.float32]:
    """Return rows shorter than 1 whose products are exact and often equal."""
    spread = rng.integers(0, 9)
    return (rng.integers(-spread, spread + 1, (n, d)) / 64).astype(np.float32)


def copies(rng: np.random.Generator, n: int, d: int) -> NDArray[np.float32]:
    """Return many copies of a few rows."""
    few = grid(rng, 4, d)
    return few[rng.integers(0, rng.integers(1, 5), n)]


def close(rng: np.random.Generator, n: int, d: int) -> NDArray[np.float32]:
    """Return unit rows with nearly one direction, or a few."""
    directions = np.random.default_rng(d).normal(size=(3, d))
    return unit(directions[rng.integers(0, 3, n)] + rng.choice([1e-5, 1e-2, 1]) * rng.normal(size=(n, d)))


def case_of(
    rng: np.random.Generator,
    rows_of: Rows,
    d: int,
    labels: NDArray[np.int32],
    members: list[NDArray[np.int64]],
    sizes_of_groups: list[int],
    own: NDArray[np.int64],
    lists: NDArray[np.int64],
    k: int,
) -> Case:
    """Return random rows and queries; ``members`` are the rows of each list, ``own`` the labels of the queries."""
    return Case(
        Y=rows_of(rng, len(labels), d),
        labels=labels,
        ids=rng.choice(2**62, len(labels), replace=False),
        members=[rows[np.argsort(labels[rows], kind="stable")] for rows in members],
        X=rows_of(rng, len(own), d),
        own=own.astype(np.int32),
        groups=np.append(0, np.cumsum(sizes_of_groups)).astype(np.int64),
        lists=lists,
        k=k,
        once=False,
    )


@st.composite
def cases(draw: st.DrawFn, once: bool = False) -> Case:
    rng = np.random.default_rng(draw(seeds))
    rows_of: Rows = draw(st.sampled_from([grid, copies, close]))
    d, k = draw(st.integers(1, 40)), draw(st.sampled_from([1, 2, 3, 10, 40, 128, 129, 150]))
    sizes = draw(st.lists(st.sampled_from([0, 1, 15, 16, 17, 40, 150]), min_size=1, max_size=8))
    sizes_of_groups = draw(st.lists(st.integers(1, 40), max_size=4))
    classes = draw(st.integers(1, 4))
    n, nq = sum(sizes), sum(sizes_of_groups)
    labels = rng.integers(-1, classes, n).astype(np.int32)
    rows = rng.integers(0, n, n) if once and n else rng.permutation(n)
    members = [np.unique(own) if once else own for own in np.split(rows, np.cumsum(sizes))[:-1]]
    number = len(sizes)
    lists = np.stack([rng.permutation(number) for _ in sizes_of_groups] or [np.arange(0)]).astype(np.int64)
    lists[rng.random(lists.shape) < 0.2] = -1
    mixed = rng.integers(0, classes + 1, nq)
    own_of_groups = np.repeat(rng.integers(0, classes + 1, len(sizes_of_groups)), sizes_of_groups)
    own = np.where(rng.random() < 0.5, mixed, own_of_groups)
    case = case_of(rng, rows_of, d, labels, members, sizes_of_groups, own, lists, k)
    return case._replace(once=once, head=draw(st.integers(0, 4)))


def panels_of(case: Case, in_bytes: bool) -> Packed:
    sizes = np.array([len(own) for own in case.members])
    rows = np.concatenate(case.members)
    addresses = case.Y.ctypes.data + case.Y.strides[0] * np.arange(len(case.Y))
    R, head, _ = turned(case, in_bytes)
    return packed(case.Y, rows, sizes, case.labels, addresses, case.ids, in_bytes, head=head, R=R)


def turned(case: Case, in_bytes: bool) -> tuple[NDArray[np.float32] | None, int, float]:
    """Return how the rows of a case's panels are turned, if they are, their head, and what that blurs."""
    d = case.X.shape[1]
    words = panels.words_of(d, in_bytes)
    if not (in_bytes and case.head):
        return None, words, 0.0
    return turning(np.random.default_rng(d), d), min(case.head, words), panels.blur(d)


def swept(case: Case, in_bytes: bool, heaps: Found, lists: NDArray[np.int64] | None = None) -> int:
    """Offer the rows of lists, the case's if none are given, and return how many were scored."""
    R, head, blur = turned(case, in_bytes)
    return sweep.scan_groups(
        case.X,
        case.X if R is None else case.X @ R,
        head,
        blur,
        in_bytes,
        case.own,
        case.groups,
        case.lists if lists is None else np.ascontiguousarray(lists),
        *panels_of(case, in_bytes),
        codes.FLAT,
        codes.NO_LEVELS,
        batch.SLACK * scan.screening_error(case.X.shape[1]),
        case.once,
        *heaps,
    )


def eligible_rows(case: Case, q: int) -> NDArray[np.int64]:
    """Return the rows that query q may find, each once."""
    g = np.searchsorted(case.groups, q, side="right") - 1
    rows = np.unique(np.concatenate([case.members[j] for j in case.lists[g] if j >= 0] or [np.arange(0)]))
    return rows[(case.labels[rows] >= 0) & (case.labels[rows] != case.own[q])]


def ranked(scores: NDArray[np.float32], ids: NDArray[np.int64], k: int) -> Found:
    best = np.lexsort((ids, -scores))[:k]
    missing = (0, k - len(best))
    return np.pad(scores[best], missing, constant_values=PADDING), np.pad(ids[best], missing, constant_values=-1)


def similarities(case: Case, q: int, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    return pair_similarities(case.Y[rows], np.tile(case.X[q], (len(rows), 1)))


def assert_best(case: Case, heaps: Found) -> None:
    """Sort the heaps; they have to hold what brute force finds."""
    scan.sort_heaps(*heaps)
    for q in range(len(case.X)):
        rows = eligible_rows(case, q)
        expected_D, expected_I = ranked(similarities(case, q, rows), case.ids[rows], case.k)
        assert_array_equal(heaps[1][q], expected_I)
        assert_array_equal(heaps[0][q], expected_D)


def assert_finds_the_best(case: Case, in_bytes: bool) -> int:
    """Sweep, hold what is found against brute force, and return how many rows were scored."""
    heaps = scan.empty_heaps(len(case.X), case.k)
    scored = swept(case, in_bytes, heaps)
    assert_best(case, heaps)
    eligible = sum(len(eligible_rows(case, q)) for q in range(len(case.X)))
    assert (heaps[1] >= 0).sum() <= scored <= eligible
    return scored


@in_bytes_or_floats
@given(cases())
def test_groups_find_the_best_of_their_lists(in_bytes: bool, case: Case) -> None:
    assert_finds_the_best(case, in_bytes)


@in_bytes_or_floats
@given(cases(once=True))
def test_a_row_of_several_lists_is_found_once(in_bytes: bool, case: Case) -> None:
    heaps = scan.empty_heaps(len(case.X), case.k)
    swept(case, in_bytes, heaps)
    assert_best(case, heaps)


@in_bytes_or_floats
@given(st.booleans().flatmap(cases), st.integers(1, 4))
def test_lists_may_come_a_few_at_a_time(in_bytes: bool, case: Case, step: int) -> None:
    heaps = scan.empty_heaps(len(case.X), case.k)
    for first in range(0, case.lists.shape[1], step):
        swept(case, in_bytes, heaps, case.lists[:, first : first + step])
    assert_best(case, heaps)


@in_bytes_or_floats
@given(cases(), seeds)
def test_what_was_found_before_stays_if_it_is_among_the_best(in_bytes: bool, case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    nq, k = len(case.X), case.k
    heaps = scan.empty_heaps(nq, k)
    # Full, less or more than full, or empty.
    before = [int(rng.choice([rng.random(), 1, 3]) * k) * (rng.random() < 0.7) for _ in range(nq)]
    found = []
    for q in range(nq):
        scores = (rng.integers(-64, 65, before[q]) / 64).astype(np.float32)
        ids = 2**62 + rng.permutation(before[q])
        for s, i in zip(scores, ids, strict=True):
            scan.offer(heaps[0][q], heaps[1][q], s, i)
        found.append((scores, ids))
    swept(case, in_bytes, heaps)
    scan.sort_heaps(*heaps)
    for q, (scores, ids) in enumerate(found):
        rows = eligible_rows(case, q)
        all_scores = np.append(similarities(case, q, rows), scores)
        expected_D, expected_I = ranked(all_scores, np.append(case.ids[rows], ids), k)
        assert_array_equal(heaps[1][q], expected_I)
        assert_array_equal(heaps[0][q], expected_D)


@in_bytes_or_floats
def test_nothing_is_found_where_all_rows_have_the_label_of_the_queries(in_bytes: bool) -> None:
    rng = np.random.default_rng(0)
    members = np.array_split(np.arange(100), 3)
    case = Case(
        Y=close(rng, 100, 6),
        labels=np.full(100, 2, np.int32),
        ids=np.arange(100),
        members=members,
        X=close(rng, 20, 6),
        own=np.full(20, 2, np.int32),
        groups=np.array([0, 1, 20]),
        lists=np.array([[0, 1, 2], [2, -1, 0]]),
        k=4,
        once=False,
    )
    heaps = scan.empty_heaps(20, 4)
    assert swept(case, in_bytes, heaps) == 0
    assert_array_equal(heaps[0], PADDING)
    assert_array_equal(heaps[1], scan.NO_ID)
    one_other = case._replace(labels=np.append(case.labels[1:], 3).astype(np.int32))
    assert swept(one_other, in_bytes, heaps) == 20
    assert_best(one_other, heaps)


def many_alike(k: int) -> Case:
    """Return two groups of eight queries and 20 lists of 200 rows: what is near to a group is in its first lists."""
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    near = np.repeat(np.arange(20), 200)
    return Case(
        Y=unit(directions[near] + 0.05 * rng.normal(size=(4000, 20))),
        labels=(np.arange(4000) % 200 // 100).astype(np.int32),
        ids=np.arange(4000),
        members=np.split(np.arange(4000), 20),
        X=unit(np.repeat(directions[[0, 7]], 8, axis=0) + 0.05 * rng.normal(size=(16, 20))),
        own=np.repeat(np.array([0, 1], np.int32), 8),
        groups=np.array([0, 8, 16]),
        lists=np.stack([np.arange(20), np.append(7, np.delete(np.arange(20), 7))]),
        k=k,
        once=False,
    )


@in_bytes_or_floats
@pytest.mark.parametrize("k", [2, 5, 20])
def test_few_rows_are_scored_where_others_are_known_to_be_better(in_bytes: bool, k: int) -> None:
    case = many_alike(k)  # each query has 100 eligible rows in its own list, and 2000 in all
    heaps = scan.empty_heaps(16, k)
    assert swept(case, in_bytes, heaps) < 16 * (4 + 2 * k)
    assert_best(case, heaps)
    one_by_one = case._replace(groups=np.arange(17), lists=np.repeat(case.lists, 8, axis=0))
    heaps = scan.empty_heaps(16, k)
    assert swept(one_by_one, in_bytes, heaps) < 16 * (20 + 4 * k)
    assert_best(one_by_one, heaps)


@in_bytes_or_floats
@given(st.booleans().flatmap(cases), seeds)
def test_damaged_rows_are_never_found(in_bytes: bool, case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    damaged = rng.random(len(case.Y)) < rng.choice([0.01, 0.1, 1])
    case.Y[damaged, rng.integers(0, case.Y.shape[1])] = rng.choice([np.inf, -np.inf, np.nan], damaged.sum())
    heaps = scan.empty_heaps(len(case.X), case.k)
    swept(case, in_bytes, heaps)
    scan.sort_heaps(*heaps)
    # The mean of a list with a damaged row is no number: the list may be passed over, the others may not.
    sound = case._replace(members=[own if not damaged[own].any() else own[:0] for own in case.members])
    for q in range(len(case.X)):
        found = heaps[1][q][heaps[1][q] >= 0]
        assert len(set(found.tolist())) == len(found)
        rows = eligible_rows(case, q)
        assert np.isin(found, case.ids[rows[~damaged[rows]]]).all()
        rows = eligible_rows(sound, q)
        assert (heaps[0][q] >= ranked(similarities(case, q, rows), case.ids[rows], case.k)[0]).all()


@in_bytes_or_floats
def test_rows_are_scored_as_they_are_kept(in_bytes: bool) -> None:
    case = many_alike(5)
    halves = case.Y.astype(np.float16)
    case = case._replace(Y=halves.astype(np.float32))
    made, d = panels_of(case, in_bytes), case.X.shape[1]
    made.addresses[:] = halves.ctypes.data + 2 * d * made.ids  # an id is a row's number here
    slack = batch.SLACK * scan.screening_error(d) * codes.screening_factor(codes.FP16, codes.NO_LEVELS)
    heaps = scan.empty_heaps(len(case.X), case.k)
    kept = codes.FP16, codes.NO_LEVELS, slack, False
    _, head, blur = turned(case, in_bytes)
    sweep.scan_groups(case.X, case.X, head, blur, in_bytes, case.own, case.groups, case.lists, *made, *kept, *heaps)
    assert_best(case, heaps)


# --- the first panels -------------------------------------------------------------------------------------------------


def first_panels(
    rng: np.random.Generator, rows_of: Rows, sizes_of_groups: list[int], k: int, sizes: list[int], mixed: bool
) -> Case:
    """Return groups that meet no list, an empty one, lists of such sizes, none, and last the list of panel 0."""
    d, n, nq = 12, 40 + sum(sizes), sum(sizes_of_groups)
    labels = rng.integers(-1, 3, n).astype(np.int32)
    members = np.split(rng.permutation(n), np.cumsum([40, 0, *sizes]))[:-1]
    order = [-1, 1, *range(2, len(members)), -1, 0]
    lists = np.tile(np.array(order, np.int64), (len(sizes_of_groups), 1))
    own = rng.integers(0, 4, nq if mixed else len(sizes_of_groups))
    own = own if mixed else np.repeat(own, sizes_of_groups)
    return case_of(rng, rows_of, d, labels, members, sizes_of_groups, own, lists, k)


kinds_of_rows = pytest.mark.parametrize("rows_of", [grid, copies, close])


@in_bytes_or_floats
@kinds_of_rows
@pytest.mark.parametrize("k", [1, 10, 128, 129])
@pytest.mark.parametrize("sizes_of_groups", [[1], [2], [4], [5], [9], [16], [17], [40], [1, 17, 2, 9, 1, 4]])
def test_the_first_list_alone_may_have_more_than_the_first_panels(
    in_bytes: bool, rows_of: Rows, k: int, sizes_of_groups: list[int]
) -> None:
    rng = np.random.default_rng(k)
    for mixed in (False, True):
        # A quarter of its panels has the label of a group.
        case = first_panels(rng, rows_of, sizes_of_groups, k, [4 * LANES * k + 21, 33], mixed)
        assert_finds_the_best(case, in_bytes)


@in_bytes_or_floats
@given(
    st.sampled_from([grid, copies, close]),
    st.lists(st.sampled_from([1, 2, 4, 5, 9, 16, 17, 40]), min_size=1, max_size=3),
    st.sampled_from([1, 2, 3, 10]),
    st.integers(0, 4),
    st.integers(-17, 17),
    st.booleans(),
    seeds,
)
def test_the_first_panels_may_end_wherever_lists_end(
    in_bytes: bool, rows_of: Rows, groups: list[int], k: int, before: int, more: int, mixed: bool, seed: int
) -> None:
    rng, first = np.random.default_rng(seed), sweep._FIRST_FOR_EACH * k
    # A few panels of several lists, then a list that ends near the last of the first panels, and one after it.
    few = rng.integers(1, LANES + 1, min(before, first - 1)).tolist()
    case = first_panels(rng, rows_of, groups, k, [*few, max(0, LANES * (first - len(few)) + more), 20], mixed)
    case.labels[rng.random(len(case.labels)) < rng.choice([0, 0.5, 0.99])] = -1
    members = [own[np.argsort(case.labels[own], kind="stable")] for own in case.members]
    own = (case.own + rng.choice([0, 9])).astype(np.int32)  # a label of no row, too
    assert_finds_the_best(case._replace(members=members, own=own), in_bytes)


@in_bytes_or_floats
@pytest.mark.parametrize("size", [2, 5, 17])
def test_rows_that_are_tied_with_the_last_are_told_apart_by_their_ids(in_bytes: bool, size: int) -> None:
    rng = np.random.default_rng(size)
    for k in (1, 10, 128):
        case = first_panels(rng, grid, [size], k, [2 * LANES * k + 50, 100], mixed=True)
        case.Y[:] = case.Y[0]  # whatever is not found is tied with what is
        case.Y[rng.choice(len(case.Y), k // 2, replace=False)] = case.X[0]
        assert_finds_the_best(case, in_bytes)


@in_bytes_or_floats
def test_few_of_the_first_panels_rows_are_scored(in_bytes: bool) -> None:
    case = many_alike(5)  # the first panels are all of the first list, where what is near is
    first_only = case._replace(lists=np.ascontiguousarray(case.lists[:, :1]), own=np.full(16, 3, np.int32))
    assert len(first_only.members[0]) > LANES * sweep._FIRST_FOR_EACH * case.k
    assert assert_finds_the_best(first_only, in_bytes) < 16 * 4 * case.k
