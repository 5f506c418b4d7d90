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

from cfe_faiss.dot import sum_of_products
from cfe_faiss.index import meet
from cfe_faiss.index.codes import FLAT, float_pointer, int_pointer, label_pointer, score
from cfe_faiss.index.meet import LANES
from cfe_faiss.index.panels import AS_QUERY, FACTS, encode, words_of
from cfe_faiss.index.scan import NO_ID, PADDING, few_of_one, offer, offer_once, product, route_few, row_at, sort_heaps
from cfe_faiss.jit import kernel

_AT_ONCE = 8  # queries that meet a panel together
_ROOM = 64  # rows that wait for a query
_SOON = 8  # of them are enough to be scored where no threshold is known yet
_LARGEST_K = 128  # for more results, thresholds come from heaps alone
_PEAKS_FOR_EACH = 3  # of those wanted
_ROWS_FOR_EACH = 20
_HALVINGS = 6
_MOST = _ROOM + _LARGEST_K + LANES  # rows that are put in order together
_MIXED = np.int32(-2)

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Words = NDArray[np.int32]
Labels = NDArray[np.int32]


class _Arrays(NamedTuple):
    """What is known of the queries of a group, a row each; there is room for whole times ``_AT_ONCE`` queries.

    Attributes
    ----------
    words, own, about, along
        Queries in words; their labels; their scale, length, error and threshold; their product with the centre of the
        list that they meet.
    peaks, floors
        What similarities some rows have at least, and what follows for the k-th best.
    sets
        Which rows of a panel may reach each of the queries that meet it.
    waiting, counts
        Lanes, numbered over all panels, of the rows that are to be scored, and how many.
    row, scores, ids, ranked, ranked_ids
        One row; and rows that are scored, before and after they are put in order.
    """

    words: Words
    own: Labels
    about: Floats
    along: Floats
    peaks: Floats
    floors: Floats
    sets: Words
    waiting: Ints
    counts: Ints
    row: Floats
    scores: Floats
    ids: Ints
    ranked: Floats
    ranked_ids: Ints


class _Memory(NamedTuple):
    """Where the arrays begin that :func:`_keep` needs, and their lengths.

    Every array that is handed on by itself is counted, which takes longer than to score a row.
    """

    d: int
    k: int
    codec: int
    once: bool
    levels: int
    levels_width: int
    addresses: int
    all_ids: int
    waiting: int
    row: int
    scores: int
    ids: int
    ranked: int
    ranked_ids: int


@kernel
def scan_groups(
    X: Floats,
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
    X, labels
        Queries, (m, d), and their labels, (m,).
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
    room = _AT_ONCE
    for g in range(groups.shape[0] - 1):
        room = max(room, -(-(groups[g + 1] - groups[g]) // _AT_ONCE) * _AT_ONCE)
    columns = 0 if once or k > _LARGEST_K else -(-_PEAKS_FOR_EACH * k // LANES)
    arrays = _Arrays(
        np.zeros((room, number), np.int32),
        np.empty(room, np.int32),
        np.zeros((room, 4), np.float32),
        np.empty(room, np.float32),
        np.empty((room, columns * LANES), np.float32),
        np.empty(room, np.float32),
        np.empty(_AT_ONCE, np.int32),
        np.empty((room, _ROOM), np.int64),
        np.zeros(room, np.int64),
        np.empty(d, np.float32),
        np.empty(_MOST, np.float32),
        np.empty(_MOST, np.int64),
        np.empty(_MOST, np.float32),
        np.empty(_MOST, np.int64),
    )
    memory = _Memory(
        d,
        k,
        codec,
        once,
        levels.ctypes.data,
        levels.shape[1],
        lane_addresses.ctypes.data,
        lane_ids.ctypes.data,
        arrays.waiting.ctypes.data,
        arrays.row.ctypes.data,
        arrays.scores.ctypes.data,
        arrays.ids.ctypes.data,
        arrays.ranked.ctypes.data,
        arrays.ranked_ids.ctypes.data,
    )
    scored = 0
    for g in range(groups.shape[0] - 1):
        cut = slice(groups[g], groups[g + 1])
        label = _begin(X[cut], labels[cut], in_bytes, arrays)
        begun = 0
        if columns and groups[g + 1] - groups[g] > 1 and I[groups[g], 0] == NO_ID:
            begun = _raise_floors(X[cut], lists[g], label, in_bytes, starts, centres, P, facts, slack, k, arrays)
        scored += _scan_lists(
            X[cut], lists[g], begun, label, in_bytes, starts, centres, P, facts, slack, arrays, memory, D[cut], I[cut]
        )
    return scored


@kernel
def _begin(X: Floats, labels: Labels, in_bytes: bool, arrays: _Arrays) -> np.int32:
    """Write what is known of a group's queries to begin with, and return their label, if it is one."""
    label, number, d = labels[0], arrays.words.shape[1], X.shape[1]
    all_X, all_words, own, about = X.ctypes.data, arrays.words.ctypes.data, arrays.own, arrays.about
    about[:, 3] = np.inf  # where there is no query nothing reaches it
    arrays.floors[:] = -np.inf
    for q in range(X.shape[0]):
        own[q] = labels[q]
        label = label if labels[q] == label else _MIXED
        words = carray(label_pointer(all_words + 4 * number * q), (number,))
        about[q, 0], about[q, 1], about[q, 2] = encode(row_at(all_X, q, d), in_bytes, words)
        if in_bytes:
            for i in range(number):
                words[i] ^= AS_QUERY
    return np.int32(label)


@kernel
def _all_of(label: np.int32, facts: int) -> bool:
    """Return whether all rows of a panel, which are sorted by label, have one."""
    labels = carray(label_pointer(facts + 4 * LANES * (FACTS - 1)), (LANES,))
    return bool(labels[0] == label and labels[LANES - 1] == label)


@kernel
def _raise_floors(
    X: Floats,
    lists: Ints,
    label: np.int32,
    in_bytes: bool,
    starts: Ints,
    centres: Floats,
    P: Words,
    facts: Words,
    slack: float,
    k: int,
    arrays: _Arrays,
) -> int:
    """Find thresholds for a group's queries from the first of its lists, and return from how many."""
    size, d = X.shape
    number, width = P.shape[1], arrays.peaks.shape[1]
    all_X, all_centres, all_P, all_facts = X.ctypes.data, centres.ctypes.data, P.ctypes.data, facts.ctypes.data
    all_words, all_own, all_about = arrays.words.ctypes.data, arrays.own.ctypes.data, arrays.about.ctypes.data
    all_peaks, thresholds = arrays.peaks.ctypes.data, arrays.about[:, 3]
    arrays.peaks[:] = -np.inf
    met, begun = 0, 0
    for j in lists:
        if met >= _ROWS_FOR_EACH * k:
            break
        begun += 1
        if j < 0:
            continue
        for q in range(size):
            thresholds[q] = product(row_at(all_X, q, d), row_at(all_centres, j, d)) - slack
        for p in range(starts[j], starts[j + 1]):
            panel, about_panel = all_P + 4 * LANES * number * p, all_facts + 4 * LANES * FACTS * p
            if _all_of(label, about_panel):
                continue
            met += LANES
            y, of_rows = label_pointer(panel), label_pointer(about_panel)
            for q in range(0, size, _AT_ONCE):
                x, own = label_pointer(all_words + 4 * number * q), label_pointer(all_own + 4 * q)
                about = float_pointer(all_about + 16 * q)
                peaks = float_pointer(all_peaks + 4 * (width * q + LANES * p % width))
                if in_bytes:
                    meet.raise_bytes_8(x, y, number, of_rows, own, about, peaks, width)
                else:
                    meet.raise_floats_8(x, y, number, of_rows, own, about, peaks, width)
    for q in range(size):
        arrays.floors[q] = _reached(all_peaks + 4 * width * q, width, k)
    return begun


@kernel
def _reached(peaks: int, width: int, k: int) -> np.float32:
    """Return a number that at least k of the peaks reach, and not many more: -inf if there are fewer."""
    low, high, count = np.float32(np.inf), np.float32(-np.inf), 0
    for start in range(0, width, LANES):
        some = float_pointer(peaks + 4 * start)
        low, high = min(low, meet.smallest(some)), max(high, meet.largest(some))
        count += meet.count_above(some, np.float32(-np.inf)) % meet.EQUAL
    if count < k:
        return np.float32(-np.inf)
    for _ in range(_HALVINGS):
        middle = np.float32(0.5) * (low + high)
        count = 0
        for start in range(0, width, LANES):
            count += meet.count_above(float_pointer(peaks + 4 * start), middle) % meet.EQUAL
        if count >= k:
            low = middle
        else:
            high = middle
    return low


@kernel
def _scan_lists(
    X: Floats,
    lists: Ints,
    begun: int,
    label: np.int32,
    in_bytes: bool,
    starts: Ints,
    centres: Floats,
    P: Words,
    facts: Words,
    slack: float,
    arrays: _Arrays,
    memory: _Memory,
    D: Floats,
    I: Ints,
) -> int:
    """Keep the best rows of lists for a group's queries, and return how many were scored."""
    size, d = X.shape
    number = P.shape[1]
    all_X, all_centres, all_P, all_facts = X.ctypes.data, centres.ctypes.data, P.ctypes.data, facts.ctypes.data
    all_words, all_own, all_about = arrays.words.ctypes.data, arrays.own.ctypes.data, arrays.about.ctypes.data
    all_D, all_I = D.ctypes.data, I.ctypes.data
    thresholds, along, floors = arrays.about[:, 3], arrays.along, arrays.floors
    sets, waiting, counts = arrays.sets, arrays.waiting, arrays.counts
    enough = _ROOM - LANES if begun else _SOON
    scored = 0
    for t in range(lists.shape[0]):
        j = lists[t]
        if j < 0 or starts[j] == starts[j + 1]:
            continue
        for q in range(size):
            along[q] = product(row_at(all_X, q, d), row_at(all_centres, j, d)) + slack
            thresholds[q] = max(D[q, 0], floors[q]) - along[q]
        for p in range(starts[j], starts[j + 1]):
            panel, about_panel = all_P + 4 * LANES * number * p, all_facts + 4 * LANES * FACTS * p
            if _all_of(label, about_panel):
                continue
            y, of_rows = label_pointer(panel), label_pointer(about_panel)
            q = 0
            while q < size:
                x, own = label_pointer(all_words + 4 * number * q), label_pointer(all_own + 4 * q)
                about = float_pointer(all_about + 16 * q)
                left = size - q
                together = 8 if left > 4 else 4 if left > 2 else left
                if in_bytes:
                    if together == 8:
                        found = meet.reach_bytes_8(x, y, number, of_rows, own, about, sets.ctypes)
                    elif together == 4:
                        found = meet.reach_bytes_4(x, y, number, of_rows, own, about, sets.ctypes)
                    elif together == 2:
                        found = meet.reach_bytes_2(x, y, number, of_rows, own, about, sets.ctypes)
                    else:
                        found = meet.reach_bytes_1(x, y, number, of_rows, own, about, sets.ctypes)
                elif together == 8:
                    found = meet.reach_floats_8(x, y, number, of_rows, own, about, sets.ctypes)
                elif together == 4:
                    found = meet.reach_floats_4(x, y, number, of_rows, own, about, sets.ctypes)
                elif together == 2:
                    found = meet.reach_floats_2(x, y, number, of_rows, own, about, sets.ctypes)
                else:
                    found = meet.reach_floats_1(x, y, number, of_rows, own, about, sets.ctypes)
                if found:
                    for c in range(q, min(q + together, size)):
                        mask = sets[c - q]
                        if mask == 0:
                            continue
                        while mask != 0:
                            waiting[c, counts[c]] = LANES * p + meet.lowest(mask)
                            counts[c] += 1
                            mask = np.int32(mask & (mask - 1))
                        if counts[c] >= enough:
                            scored += counts[c]
                            _keep(c, counts[c], all_X, all_D, all_I, memory)
                            counts[c] = 0
                            thresholds[c] = max(D[c, 0], floors[c]) - along[c]
                q += together
        if t + 1 >= begun:
            scored += _keep_all(size, counts, all_X, all_D, all_I, memory)
    return scored + _keep_all(size, counts, all_X, all_D, all_I, memory)


@kernel
def _keep_all(size: int, counts: Ints, all_X: int, all_D: int, all_I: int, memory: _Memory) -> int:
    """Score all rows that wait for a group's queries, keep the best, and return how many were scored."""
    scored = 0
    for q in range(size):
        if counts[q]:
            scored += counts[q]
            _keep(q, counts[q], all_X, all_D, all_I, memory)
            counts[q] = 0
    return scored


@kernel
def _keep(q: int, count: int, all_X: int, all_D: int, all_I: int, memory: _Memory) -> None:
    """Score the ``count`` rows that wait for query q of a group, and keep the best."""
    d, k = memory.d, memory.k
    x, levels = all_X + 4 * d * q, memory.levels
    D, I = row_at(all_D, q, k), carray(int_pointer(all_I + 8 * k * q), (k,))
    scores, ids = row_at(memory.scores, 0, _MOST), carray(int_pointer(memory.ids), (_MOST,))
    ranking = k <= _LARGEST_K and not memory.once
    m = 0
    if ranking:
        for place in range(k):
            if I[place] != NO_ID:
                scores[m], ids[m] = D[place], I[place]
                m += 1
    for lane in carray(int_pointer(memory.waiting + 8 * _ROOM * q), (count,)):
        address = carray(int_pointer(memory.addresses + 8 * lane), (1,))[0]
        i = carray(int_pointer(memory.all_ids + 8 * lane), (1,))[0]
        if memory.codec == FLAT:
            s = np.float32(sum_of_products(float_pointer(x), float_pointer(address), d))
        else:
            table = carray(float_pointer(levels), (2, memory.levels_width))
            s = score(memory.codec, table, row_at(x, 0, d), address, row_at(memory.row, 0, d))
        if ranking:
            scores[m], ids[m] = s, i
            m += 1
        elif memory.once:
            offer_once(D, I, s, i)
        else:
            offer(D, I, s, i)
    if ranking:
        _rank(m, memory, D, I)


@kernel
def _rank(m: int, memory: _Memory, D: Floats, I: Ints) -> None:
    """Write the best of m scores and their ids to D and I, worst first: a heap, too."""
    scores, ids = row_at(memory.scores, 0, _MOST), carray(int_pointer(memory.ids), (_MOST,))
    ranked, ranked_ids = row_at(memory.ranked, 0, _MOST), carray(int_pointer(memory.ranked_ids), (_MOST,))
    padded = -(-m // LANES) * LANES
    for c in range(m, padded):
        scores[c] = -np.inf
    for c in range(m):
        s = scores[c]
        better = 0
        for start in range(0, padded, LANES):
            better += meet.count_above(float_pointer(memory.scores + 4 * start), s)
        rank = better % meet.EQUAL
        if better >= 2 * meet.EQUAL:
            for e in range(m):
                rank += scores[e] == s and ids[e] < ids[c]
        ranked[rank], ranked_ids[rank] = s, ids[c]
    for place in range(memory.k - m):
        D[place], I[place] = PADDING, NO_ID
    for rank in range(min(m, memory.k)):
        D[memory.k - 1 - rank], I[memory.k - 1 - rank] = ranked[rank], ranked_ids[rank]


@kernel
def search_few(
    X: Floats,
    labels_q: Labels,
    places: Ints,
    slack: float,
    lists: Ints,
    D: Floats,
    I: Ints,
) -> bool:
    """Do what :func:`scan.search_few` does among all rows, by panels of all lists of one partition; for float32.

    The panels' arrays follow those of the index in ``places``.
    """
    d, total, number = X.shape[1], places[3], places[41]
    route_few(X, labels_q, places, lists)
    D[:] = PADDING
    I[:] = NO_ID
    scan_groups(
        X,
        True,
        labels_q,
        np.arange(X.shape[0] + 1),
        lists,
        carray(int_pointer(places[36]), (places[37],)),
        carray(float_pointer(places[38]), (total, d)),
        carray(label_pointer(places[40]), (number, words_of(d, True), LANES)),
        carray(label_pointer(places[42]), (number, FACTS, LANES)),
        carray(int_pointer(places[44]), (number, LANES)),
        carray(int_pointer(places[46]), (number, LANES)),
        FLAT,
        carray(float_pointer(places[32]), (2, places[33] // 2)),
        slack,
        False,
        D,
        I,
    )
    sort_heaps(D, I)
    return bool((I[:, -1] >= 0).all())


@kernel
def search_one(X: Floats, label: int, nprobe: int, places: Ints, slack: float, D: Floats, I: Ints) -> bool:
    """Do what :func:`scan.search_one` does, by the panels of :func:`search_few`."""
    fine, unit, labels, lists = few_of_one(X, label, nprobe)
    return fine and search_few(unit, labels, places, slack, lists, D, I)
