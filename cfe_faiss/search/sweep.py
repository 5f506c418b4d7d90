"""The sweep: groups of queries meet the rows of lists, panel by panel, and keep the best.

First the rows of a group's nearest lists are looked at for what similarity they have *at least*: of 16 numbers, one for
each lane, those that k rows reach are reached by the k-th best of all rows, too. With that threshold few rows remain to
be scored. They wait until there are some, are scored one after the other, and then put in order by counting, for each,
how many are better: all without a branch that the processor would have to guess.
"""

from typing import NamedTuple

import numpy as np
from numba import carray
from numpy.typing import NDArray

from cfe_faiss.dot import sum_of_wide_products
from cfe_faiss.jit import kernel
from cfe_faiss.lists.codecs import FLAT, double_pointer, float_pointer, int_pointer, label_pointer, score
from cfe_faiss.lists.scan import NO_ID, PADDING, offer, offer_once, product, row_at
from cfe_faiss.search import meet, select
from cfe_faiss.search.meet import FACTS, LANES, QUERY_FACTS
from cfe_faiss.search.panels import AS_QUERY, encode, length_after

_AT_ONCE = 8  # queries that meet a panel together
_ROOM = 64  # rows that wait for a query
_SOON = 8  # of them are enough to be scored where no threshold is known yet
_FIRST_FOR_EACH = 2  # panels, of each result that is wanted, give the first thresholds
_FEW = 4  # queries are multiplied with a centre one by one
_MOST = _ROOM + select.LARGEST_K + LANES  # rows that are put in order together
_LINE = 64  # bytes of a cache line
_WORTH_ASKING = 64  # dimensions, for rows to be asked for before the first is read
_MIXED = np.int32(-2)

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Words = NDArray[np.int32]
Labels = NDArray[np.int32]


class _Given(NamedTuple):
    """The arguments of :func:`scan_groups`: arrays by where they begin, as one that is handed on is counted each time.

    Attributes
    ----------
    d, number, k, nprobe, head, codec, in_bytes, once, slack, blur
        Dimensions, words of a query, results and lists; and arguments of :func:`scan_groups`.
    X, turned, labels, lists, D, I
        Queries, as panels are turned, too, their labels, the lists of their groups, and heaps.
    starts, centres, P, facts, lane_addresses, lane_ids, levels, levels_width
        Panels, and how rows are kept.
    """

    d: int
    number: int
    k: int
    nprobe: int
    head: int
    codec: int
    in_bytes: bool
    once: bool
    slack: float
    blur: float
    X: int
    turned: int
    labels: int
    lists: int
    D: int
    I: int
    starts: int
    centres: int
    P: int
    facts: int
    lane_addresses: int
    lane_ids: int
    levels: int
    levels_width: int


class _Work(NamedTuple):
    """Where the arrays begin that a sweep works with.

    Attributes
    ----------
    words, own, about
        The queries of a group in words; their labels; their length, error, 1, threshold, and length after the head, in
        units of their scale.
    columns, along
        The queries as panels of floats, 0 where they are few; and their products with the centre of a list.
    peaks, tops, width, first, firsts
        What similarities the rows of the first panels have at least and at most: ``width`` numbers of each query, and
        as many as lanes of ``firsts`` panels, in units of the query's scale. The numbers of these panels.
    floors, high
        What follows for the k-th best of a query, and what it is found with.
    sets
        Which rows of a panel may reach each of the queries that meet it.
    waiting, counts
        Lanes, numbered over all panels, of the rows that are to be scored, and how many.
    row, wide, scores, ids, ranked, ranked_ids
        One row; a query in float64; and rows that are scored, before and after they are put in order.
    """

    words: int
    own: int
    about: int
    columns: int
    along: int
    peaks: int
    tops: int
    width: int
    first: int
    firsts: int
    floors: int
    high: int
    sets: int
    waiting: int
    counts: int
    row: int
    wide: int
    scores: int
    ids: int
    ranked: int
    ranked_ids: int


@kernel
def scan_groups(
    X: Floats,
    turned: Floats,
    head: int,
    blur: float,
    in_bytes: bool,
    labels: Labels,
    groups: Ints,
    lists: Ints,
    starts: Ints,
    centres: Floats,
    P: Words,
    facts: Words,
    lane_addresses: Ints,
    lane_ids: Ints,
    codec: int,
    levels: Floats,
    slack: float,
    once: bool,
    D: Floats,
    I: Ints,
) -> int:
    """Offer to the queries ``groups[g]:groups[g + 1]`` the eligible rows of the lists ``lists[g]``.

    Parameters
    ----------
    X, turned, labels
        Queries, (m, d), the same as the rows of panels are turned, and their labels, (m,).
    head, blur
        As in :func:`panels.pack`, for the panels and for ``turned``.
    in_bytes
        Whether panels hold bytes.
    starts, centres, P, facts, lane_addresses, lane_ids
        First panel of each list and, last, the number of panels; and the panels, as from :func:`panels.pack`.
    codec, levels
        How the rows at the addresses are kept.
    slack
        Bound of the error of all products of floats that are compared with a threshold.
    once
        Whether a row may be met several times.
    D, I
        Heaps, (m, k).

    Returns
    -------
    How many rows were scored.
    """
    d, number, k = X.shape[1], P.shape[1], D.shape[1]
    largest = 0
    for g in range(groups.shape[0] - 1):
        largest = max(largest, groups[g + 1] - groups[g])
    room, blocks = -(-largest // _AT_ONCE) * _AT_ONCE, -(-largest // LANES)
    looking = not once and k <= select.LARGEST_K and largest > 1
    width, firsts = (-(-select.PEAKS_FOR_EACH * k // LANES) * LANES, _FIRST_FOR_EACH * k) if looking else (0, 0)
    words, own, about = (
        np.zeros((room, number), np.int32),
        np.empty(room, np.int32),
        np.zeros((room, QUERY_FACTS), np.float32),
    )
    columns = np.zeros((blocks if largest > _FEW else 0, d, LANES), np.float32)
    numbers = np.empty(blocks * LANES + room * (width + firsts * LANES + 2) + d + 2 * _MOST, np.float32)
    wide = np.empty(d, np.float64)
    lanes, counts = np.empty(_AT_ONCE + room * _ROOM, np.int32), np.zeros(room, np.int64)
    longs = np.empty(firsts + 2 * _MOST, np.int64)
    along = numbers.ctypes.data
    peaks = along + 4 * blocks * LANES
    tops = peaks + 4 * room * width
    floors = tops + 4 * room * firsts * LANES
    row = floors + 8 * room
    scores = row + 4 * d
    ids = longs.ctypes.data + 8 * firsts
    given = _Given(
        d,
        number,
        k,
        lists.shape[1],
        head,
        codec,
        in_bytes,
        once,
        slack,
        blur,
        X.ctypes.data,
        turned.ctypes.data,
        labels.ctypes.data,
        lists.ctypes.data,
        D.ctypes.data,
        I.ctypes.data,
        starts.ctypes.data,
        centres.ctypes.data,
        P.ctypes.data,
        facts.ctypes.data,
        lane_addresses.ctypes.data,
        lane_ids.ctypes.data,
        levels.ctypes.data,
        levels.shape[1],
    )
    work = _Work(
        words.ctypes.data,
        own.ctypes.data,
        about.ctypes.data,
        columns.ctypes.data if columns.shape[0] else 0,
        along,
        peaks,
        tops,
        width,
        longs.ctypes.data,
        firsts,
        floors,
        floors + 4 * room,
        lanes.ctypes.data,
        lanes.ctypes.data + 4 * _AT_ONCE,
        counts.ctypes.data,
        row,
        wide.ctypes.data,
        scores,
        ids,
        scores + 4 * _MOST,
        ids + 8 * _MOST,
    )
    return _scan_all(groups, given, work, (words, own, about, columns, numbers, wide, lanes, counts, longs))


@kernel
def _scan_all(
    groups: Ints, given: _Given, work: _Work, alive: tuple[Words | Floats | NDArray[np.float64] | Ints, ...]
) -> int:
    """Do it; ``alive`` are the arrays that ``work`` tells the addresses of, which live while they are handed on."""
    scored = 0
    for g in range(groups.shape[0] - 1):
        first, size = groups[g], groups[g + 1] - groups[g]
        label = _begin(first, size, given, work)
        t, p = 0, 0
        if work.firsts and size > 1 and carray(int_pointer(given.I + 8 * given.k * first), (1,))[0] == NO_ID:
            t, p, filled = _look(g, first, size, label, given, work)
            scored += _keep_first(first, size, filled, given, work)
        scored += _scan_lists(g, first, size, t, p, label, given, work)
    return scored


@kernel
def _begin(first: int, size: int, given: _Given, work: _Work) -> np.int32:
    """Write what is known of a group's queries to begin with, and return their label, if it is one."""
    d, number = given.d, given.number
    room = -(-size // _AT_ONCE) * _AT_ONCE
    labels, own = carray(label_pointer(given.labels + 4 * first), (size,)), carray(label_pointer(work.own), (size,))
    about = carray(float_pointer(work.about), (room, QUERY_FACTS))
    columns = carray(float_pointer(work.columns), (-(-size // LANES), d, LANES))
    for q in range(size, room):
        about[q, 3] = np.inf  # where there is no query nothing reaches it
    label = labels[0]
    for q in range(size):
        own[q] = labels[q]
        label = label if labels[q] == label else _MIXED
        words = carray(label_pointer(work.words + 4 * number * q), (number,))
        x, turned = row_at(given.X, first + q, d), row_at(given.turned, first + q, d)
        scale, length, error = encode(turned, given.in_bytes, words)
        rest = length_after(turned, given.head, given.in_bytes)
        blur = np.float32(given.blur * length)
        about[q, 0], about[q, 1], about[q, 2] = (length + blur) / scale, (error + blur) / scale, np.float32(1) / scale
        about[q, 4] = (rest + blur) / scale
        if given.in_bytes:
            for i in range(number):
                words[i] ^= AS_QUERY
        if work.columns:
            for i in range(d):
                columns[q // LANES, i, q % LANES] = x[i]
    return np.int32(label)


@kernel
def _all_of(label: np.int32, facts: int) -> bool:
    """Return whether all rows of a panel, which are sorted by label, have one."""
    labels = carray(label_pointer(facts + 4 * LANES * (FACTS - 1)), (LANES,))
    return bool(labels[0] == label and labels[LANES - 1] == label)


@kernel
def _meet_centre(j: int, first: int, size: int, given: _Given, work: _Work) -> None:
    """Write the products of a group's queries with the centre of a list."""
    d, centre = given.d, given.centres + 4 * given.d * j
    if work.columns:
        for block in range(-(-size // LANES)):
            columns = label_pointer(work.columns + 4 * LANES * d * block)
            meet.products_1(label_pointer(centre), columns, d, float_pointer(work.along + 4 * LANES * block), 0)
    else:
        along = row_at(work.along, 0, size)
        for q in range(size):
            along[q] = product(row_at(given.X, first + q, d), row_at(centre, 0, d))


@kernel
def _look(g: int, first: int, size: int, label: np.int32, given: _Given, work: _Work) -> tuple[int, int, int]:
    """Look at the first panels of the lists of group g, and find thresholds for its queries.

    Returns
    -------
    What comes then: a place among the lists and the number of a panel; and how many panels were looked at.
    """
    number, width, length = given.number, work.width, work.firsts * LANES
    lists = carray(int_pointer(given.lists + 8 * given.nprobe * g), (given.nprobe,))
    seen, along = carray(int_pointer(work.first), (work.firsts,)), row_at(work.along, 0, size)
    about = carray(float_pointer(work.about), (size, QUERY_FACTS))
    row_at(work.peaks, 0, size * width)[:] = -np.inf
    filled = 0
    for t in range(given.nprobe):
        j = lists[t]
        start, stop = _panels_of(j, given)
        if start == stop:
            continue
        _meet_centre(j, first, size, given, work)
        for q in range(size):
            about[q, 3] = (along[q] - given.slack) * about[q, 2]
        for p in range(start, stop):
            panel, about_panel = given.P + 4 * LANES * number * p, given.facts + 4 * LANES * FACTS * p
            if _all_of(label, about_panel):
                continue
            if filled == work.firsts:
                select.reached(work.peaks, size, width, given.k, work.floors, work.high)
                return t, p, filled
            y, of_rows = label_pointer(panel), label_pointer(about_panel)
            q = 0
            while q < size:
                together = 8 if label == _MIXED or size - q > 4 else 4
                x, own = label_pointer(work.words + 4 * number * q), label_pointer(work.own + 4 * q)
                known = float_pointer(work.about + 4 * QUERY_FACTS * q)
                peaks = float_pointer(work.peaks + 4 * (width * q + LANES * filled % width))
                tops = float_pointer(work.tops + 4 * (length * q + LANES * filled))
                if label == _MIXED:
                    if given.in_bytes:
                        meet.raise_mixed_bytes(x, y, number, of_rows, own, known, peaks, width, tops, length)
                    else:
                        meet.raise_mixed_floats(x, y, number, of_rows, own, known, peaks, width, tops, length)
                elif given.in_bytes:
                    if together == 8:
                        meet.raise_bytes_8(x, y, number, of_rows, own, known, peaks, width, tops, length)
                    else:
                        meet.raise_bytes_4(x, y, number, of_rows, own, known, peaks, width, tops, length)
                elif together == 8:
                    meet.raise_floats_8(x, y, number, of_rows, own, known, peaks, width, tops, length)
                else:
                    meet.raise_floats_4(x, y, number, of_rows, own, known, peaks, width, tops, length)
                q += together
            seen[filled] = p
            filled += 1
    select.reached(work.peaks, size, width, given.k, work.floors, work.high)
    return given.nprobe, 0, filled


@kernel
def _panels_of(j: int, given: _Given) -> tuple[int, int]:
    """Return the first panel of list j and the one after its last; as many for no list."""
    if j < 0:
        return 0, 0
    starts = carray(int_pointer(given.starts + 8 * j), (2,))
    return starts[0], starts[1]


@kernel
def _keep_first(first: int, size: int, filled: int, given: _Given, work: _Work) -> int:
    """Keep the best rows of the panels that were looked at, and return how many were scored."""
    seen, floors = carray(int_pointer(work.first), (work.firsts,)), row_at(work.floors, 0, size)
    about = carray(float_pointer(work.about), (size, QUERY_FACTS))
    scored = 0
    for q in range(size):
        threshold, count = np.float32(max(floors[q] - 2 * given.slack * about[q, 2], PADDING)), 0
        tops, waiting = work.tops + 4 * LANES * work.firsts * q, work.waiting + 4 * _ROOM * q
        for place in range(filled):
            mask = meet.at_least(float_pointer(tops + 4 * LANES * place), threshold)
            count += meet.put(mask, np.int32(LANES * seen[place]), label_pointer(waiting + 4 * count))
            if count > _ROOM - LANES:
                scored += count
                _keep(first, q, count, given, work)
                count = 0
        if count:
            scored += count
            _keep(first, q, count, given, work)
    return scored


@kernel
def _scan_lists(
    g: int, first: int, size: int, first_list: int, first_panel: int, label: np.int32, given: _Given, work: _Work
) -> int:
    """Keep the best rows of group g's lists, from one panel of one of them on, and return how many were scored."""
    number = given.number
    lists = carray(int_pointer(given.lists + 8 * given.nprobe * g), (given.nprobe,))
    about, along = carray(float_pointer(work.about), (size, QUERY_FACTS)), row_at(work.along, 0, size)
    worst = carray(float_pointer(given.D + 4 * given.k * first), (size, given.k))
    sets, counts = carray(label_pointer(work.sets), (_AT_ONCE,)), carray(int_pointer(work.counts), (size,))
    scored = 0
    for t in range(first_list, given.nprobe):
        start, stop = _panels_of(lists[t], given)
        if start == stop:
            continue
        _meet_centre(lists[t], first, size, given, work)
        for q in range(size):
            along[q] += given.slack
            about[q, 3] = (worst[q, 0] - along[q]) * about[q, 2]
        for p in range(max(start, first_panel), stop):
            panel, about_panel = given.P + 4 * LANES * number * p, given.facts + 4 * LANES * FACTS * p
            if _all_of(label, about_panel):
                continue
            y, of_rows, found_sets = label_pointer(panel), label_pointer(about_panel), label_pointer(work.sets)
            q = 0
            while q < size:
                x, own = label_pointer(work.words + 4 * number * q), label_pointer(work.own + 4 * q)
                known = float_pointer(work.about + 4 * QUERY_FACTS * q)
                left = size - q
                together = 8 if label == _MIXED or left > 4 else 4 if left > 2 else left
                if label == _MIXED:
                    if given.in_bytes:
                        found = meet.reach_mixed_bytes(x, y, number, given.head, of_rows, own, known, found_sets)
                    else:
                        found = meet.reach_mixed_floats(x, y, number, given.head, of_rows, own, known, found_sets)
                elif given.in_bytes:
                    if together == 8:
                        found = meet.reach_bytes_8(x, y, number, given.head, of_rows, own, known, found_sets)
                    elif together == 4:
                        found = meet.reach_bytes_4(x, y, number, given.head, of_rows, own, known, found_sets)
                    elif together == 2:
                        found = meet.reach_bytes_2(x, y, number, given.head, of_rows, own, known, found_sets)
                    else:
                        found = meet.reach_bytes_1(x, y, number, given.head, of_rows, own, known, found_sets)
                elif together == 8:
                    found = meet.reach_floats_8(x, y, number, given.head, of_rows, own, known, found_sets)
                elif together == 4:
                    found = meet.reach_floats_4(x, y, number, given.head, of_rows, own, known, found_sets)
                elif together == 2:
                    found = meet.reach_floats_2(x, y, number, given.head, of_rows, own, known, found_sets)
                else:
                    found = meet.reach_floats_1(x, y, number, given.head, of_rows, own, known, found_sets)
                if found:
                    for c in range(q, min(q + together, size)):
                        mask = sets[c - q]
                        if mask == 0:
                            continue
                        end = label_pointer(work.waiting + 4 * (_ROOM * c + counts[c]))
                        counts[c] += meet.put(mask, np.int32(LANES * p), end)
                        if counts[c] >= _SOON:
                            scored += counts[c]
                            _keep(first, c, counts[c], given, work)
                            counts[c] = 0
                            about[c, 3] = (worst[c, 0] - along[c]) * about[c, 2]
                q += together
        first_panel = 0
        for q in range(size):
            if counts[q]:
                scored += counts[q]
                _keep(first, q, counts[q], given, work)
                counts[q] = 0
    return scored


@kernel
def _keep(first: int, q: int, count: int, given: _Given, work: _Work) -> None:
    """Score the ``count`` rows that wait for query q of a group, and keep the best."""
    d, k = given.d, given.k
    x, levels = given.X + 4 * d * (first + q), given.levels
    D, I = row_at(given.D, first + q, k), carray(int_pointer(given.I + 8 * k * (first + q)), (k,))
    scores, ids = row_at(work.scores, 0, _MOST), carray(int_pointer(work.ids), (_MOST,))
    ranking = k <= select.LARGEST_K and not given.once
    m = 0
    if ranking:
        for place in range(k):
            scores[m], ids[m] = D[place], I[place]
            m += I[place] != NO_ID
    lanes = carray(label_pointer(work.waiting + 4 * _ROOM * q), (count,))
    if given.codec == FLAT:
        wide, narrow = carray(double_pointer(work.wide), (d,)), row_at(x, 0, d)
        for i in range(d):
            wide[i] = narrow[i]
        if d >= _WORTH_ASKING:
            for lane in lanes:
                address = carray(int_pointer(given.lane_addresses + 8 * lane), (1,))[0]
                for offset in range(0, 4 * d, _LINE):
                    meet.prefetch(address + offset)
    for lane in lanes:
        address = carray(int_pointer(given.lane_addresses + 8 * lane), (1,))[0]
        i = carray(int_pointer(given.lane_ids + 8 * lane), (1,))[0]
        if given.codec == FLAT:
            s = np.float32(sum_of_wide_products(double_pointer(work.wide), float_pointer(address), d))
        else:
            table = carray(float_pointer(levels), (2, given.levels_width))
            s = score(given.codec, table, row_at(x, 0, d), address, row_at(work.row, 0, d))
        if ranking:
            scores[m], ids[m] = s, i
            m += 1
        elif given.once:
            offer_once(D, I, s, i)
        else:
            offer(D, I, s, i)
    if ranking:
        _settle(m, given, work, D, I)


@kernel
def _settle(m: int, given: _Given, work: _Work, D: Floats, I: Ints) -> None:
    """Write the best of m scores and their ids to D and I, worst first: a heap, too."""
    select.put_in_order(m, work.scores, work.ids, work.ranked, work.ranked_ids)
    ranked, ranked_ids = row_at(work.ranked, 0, _MOST), carray(int_pointer(work.ranked_ids), (_MOST,))
    for place in range(given.k - m):
        D[place], I[place] = PADDING, NO_ID
    for rank in range(min(m, given.k)):
        D[given.k - 1 - rank], I[given.k - 1 - rank] = ranked[rank], ranked_ids[rank]
