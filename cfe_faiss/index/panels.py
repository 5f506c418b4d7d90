"""Panels: rows interleaved by 16, so that a few queries meet 16 rows in one pass over the dimensions.

A matrix product writes its scores to memory before anybody looks at them. Here they stay in registers, and what cannot
reach a query's threshold, or has its label, never leaves them. What could reach it is scored again from the vectors
themselves by :func:`cfe_faiss.dot.similarity`: how rows are screened changes the time, never the result.

Rows are screened in bytes. With c the mean of the rows of a list and x' = x - c,

    q·x = q·c + q·x',    q·x' <= q^·x^ + |q - q^| |x^| + |q| |x' - x^|    (Cauchy-Schwarz)

where q^ and x^ are q and x' rounded to 8-bit integers times a scale of their own. The norms are known, so the bound is
rigorous, and tight, since x' is short where the rows of a list are alike. Where the processor has no instruction for
products of bytes (AVX-512 VNNI), q^ and x^ are q and x' in float32. Either way a row is a sequence of 4-byte words.
"""

from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from cfe_faiss.checks import as_unit_row, is_label
from cfe_faiss.index.codes import FLAT, float_pointer, int_pointer, label_pointer, score
from cfe_faiss.index.scan import NO_ID, PADDING, offer, offer_once, product, route_few, row_at, sort_heaps
from cfe_faiss.jit import kernel

LANES = 16
"""Rows of a panel."""

HAS_BYTES = bool(llvm.get_host_cpu_features().get("avx512vnni"))
"""Whether this processor multiplies bytes."""

FACTS = 5
"""What is known of each row of a panel besides its words."""

_ZERO = 128  # what a query's byte 0 is stored as: the instruction takes one factor without a sign
_AS_QUERY = np.int32(-0x7F7F7F80)  # adds that to each byte of a word, by exclusive or
_LARGEST = 127
_CHAINS = 8  # sums that are in flight at once
_MIXED = np.int32(-2)

_FLOAT, _INT, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_FLOATS, _INTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT, LANES)
_FUSED = ("contract",)

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Words = NDArray[np.int32]
Labels = NDArray[np.int32]


# --- a few queries against one panel ----------------------------------------------------------------------------------


def _meet(rows: int, in_bytes: bool) -> Any:
    """Return an intrinsic that bounds the similarities of ``rows`` queries with the 16 rows of a panel.

    Its arguments are pointers: the queries' words, one query after the other; the panel's words, (words, 16); their
    number; the panel's facts, (5, 16): first sum, scale, error |x' - x^|, length |x^| and label of each row; the
    queries' labels; the queries' facts, (rows, 4): scale, length, error and threshold; and where to put, for each
    query, the set of rows that may reach the threshold and have another label. It returns whether there is any; only
    then are the sets written.
    """
    add = _add_bytes if in_bytes else _add_floats
    kind = _INTS if in_bytes else _FLOATS

    def meet(typingctx: Any, x: Any, y: Any, words: Any, facts: Any, own: Any, query_facts: Any, hits: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, y, words, facts, own, query_facts, hits = args
            write, end = builder.append_basic_block(), builder.append_basic_block()
            starts = [builder.gep(x, [builder.mul(words, _LONG(r))]) for r in range(rows)]
            chains = _CHAINS // rows  # a sum waits for its last addition: a few queries take several sums each
            zero = ir.Constant(kind, [0] * LANES)
            sums: list[Any] = [_load(builder, facts, 0, kind)] * rows + [zero] * (_CHAINS - rows)
            place: Any = _LONG(0)
            for step in sorted({chains, 1}, reverse=True):
                sums, place = _add_words(builder, add, starts, y, words, step, sums, place)
            scale, error, length = (_load(builder, facts, fact, _FLOATS) for fact in (1, 2, 3))
            labels = _load(builder, facts, 4, _INTS)
            masks = []
            for r in range(rows):
                total = sums[r]
                for later in sums[r + rows :: rows]:
                    total = builder.add(total, later) if in_bytes else builder.fadd(total, later)
                if in_bytes:
                    total = builder.sitofp(total, _FLOATS)
                own_scale, own_length, own_error, threshold = (
                    _broadcast(builder, builder.load(builder.gep(query_facts, [_LONG(4 * r + fact)])), _FLOATS)
                    for fact in range(4)
                )
                bound = builder.fmul(error, own_length, flags=_FUSED)
                bound = builder.fadd(bound, builder.fmul(length, own_error, flags=_FUSED), flags=_FUSED)
                product = builder.fmul(builder.fmul(total, scale), own_scale, flags=_FUSED)
                reaches = builder.fcmp_ordered(">=", builder.fadd(product, bound, flags=_FUSED), threshold)
                label = _broadcast(builder, builder.load(builder.gep(own, [_LONG(r)])), _INTS)
                both = builder.and_(reaches, builder.icmp_signed("!=", labels, label))
                masks.append(builder.zext(builder.bitcast(both, ir.IntType(LANES)), _INT))
            anything = masks[0]
            for mask in masks[1:]:
                anything = builder.or_(anything, mask)
            found = builder.icmp_signed("!=", anything, _INT(0))
            builder.cbranch(found, write, end)
            builder.position_at_end(write)
            for r in range(rows):
                builder.store(masks[r], builder.gep(hits, [_LONG(r)]))
            builder.branch(end)
            builder.position_at_end(end)
            return found

        ints, floats = types.CPointer(types.int32), types.CPointer(types.float32)
        return types.boolean(ints, ints, types.int64, ints, ints, floats, ints), generate

    return intrinsic(meet)


def _add_words(
    builder: Any, add: Any, starts: list[Any], y: Any, words: Any, step: int, sums: list[Any], place: Any
) -> tuple[list[Any], Any]:
    """Add the products of the words from ``place`` on, ``step`` at a time, while that many are left."""
    rows = len(starts)
    before, body, end = builder.block, builder.append_basic_block(), builder.append_basic_block()
    builder.cbranch(builder.icmp_signed("<=", builder.add(place, _LONG(step)), words), body, end)

    builder.position_at_end(body)
    i = builder.phi(_LONG)
    running = [builder.phi(value.type) for value in sums]
    following = list(running)
    for chain in range(step):
        at = builder.add(i, _LONG(chain))
        column = builder.load(
            builder.bitcast(builder.gep(y, [builder.mul(at, _LONG(LANES))]), _INTS.as_pointer()), align=4
        )
        for r in range(rows):
            word = _broadcast(builder, builder.load(builder.gep(starts[r], [at])), _INTS)
            following[chain * rows + r] = add(builder, following[chain * rows + r], word, column)
    next_i = builder.add(i, _LONG(step))
    for phi, first, later in zip([i, *running], [place, *sums], [next_i, *following], strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, body)
    builder.cbranch(builder.icmp_signed("<=", builder.add(next_i, _LONG(step)), words), body, end)

    builder.position_at_end(end)
    results = []
    for first, later in zip([*sums, place], [*following, next_i], strict=True):
        phi = builder.phi(first.type)
        phi.add_incoming(first, before)
        phi.add_incoming(later, body)
        results.append(phi)
    return results[:-1], results[-1]


def _add_bytes(builder: Any, total: Any, word: Any, column: Any) -> Any:
    name = "llvm.x86.avx512.vpdpbusd.512"
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(_INTS, [_INTS] * 3), name)
    return builder.call(function, [total, word, column])


def _add_floats(builder: Any, total: Any, word: Any, column: Any) -> Any:
    product = builder.fmul(builder.bitcast(word, _FLOATS), builder.bitcast(column, _FLOATS), flags=_FUSED)
    return builder.fadd(total, product, flags=_FUSED)


def _load(builder: Any, pointer: Any, row: int, kind: Any) -> Any:
    return builder.load(builder.bitcast(builder.gep(pointer, [_LONG(row * LANES)]), kind.as_pointer()), align=4)


def _broadcast(builder: Any, value: Any, kind: Any) -> Any:
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _INT(0))
    zeros = ir.Constant(ir.VectorType(_INT, LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), zeros)


@intrinsic  # type: ignore[untyped-decorator]
def _lowest(typingctx: Any, mask: Any) -> Any:
    """Return the number of the lowest bit that is set."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.cttz(args[0], ir.Constant(ir.IntType(1), 1)), _LONG)

    return types.int64(types.int32), generate


_floats_1, _floats_2, _floats_4, _floats_8 = (_meet(rows, False) for rows in (1, 2, 4, 8))
# Where the instruction is missing these are never called, but have to be compiled.
_bytes_1, _bytes_2, _bytes_4, _bytes_8 = (_meet(rows, HAS_BYTES) for rows in (1, 2, 4, 8))


# --- rows as words ----------------------------------------------------------------------------------------------------


@kernel
def words_of(d: int, in_bytes: bool) -> int:
    """Return how many words a row of length d takes."""
    return -(-d // 4) if in_bytes else d


@kernel
def encode(x: Floats, in_bytes: bool, words: Words) -> tuple[np.float32, np.float32, np.float32]:
    """Write a row as words, and return its scale, its length, and how far it is from what was written.

    The bytes of a row are its values divided by its scale, -127..127, in words of four.
    """
    length = np.float32(np.sqrt(product(x, x)))
    if not in_bytes:
        words[:] = x.view(np.int32)
        return np.float32(1), length, np.float32(0)
    largest = np.float32(0)
    for value in x:
        largest = max(largest, abs(value))
    scale = np.float32(largest / _LARGEST) if largest > 0 else np.float32(1)
    inverse = np.float32(1) / scale
    codes = words.view(np.int8)
    codes[x.shape[0] :] = 0
    error = np.float32(0)
    for i in range(x.shape[0]):
        code = np.rint(x[i] * inverse)
        codes[i] = np.int8(code)
        error += (x[i] - code * scale) ** 2
    return scale, length, np.float32(np.sqrt(error))


@kernel
def pack(
    X: Floats,
    rows: Ints,
    labels: Labels,
    addresses: Ints,
    ids: Ints,
    in_bytes: bool,
    borders: Ints,
    first: int,
    centres: Floats,
    P: Words,
    facts: Words,
    lane_addresses: Ints,
    lane_ids: Ints,
) -> None:
    """Interleave the rows of lists into panels from panel ``first`` on; each list begins a panel of its own.

    Parameters
    ----------
    X, rows
        Rows of the lists one after the other, (m, d): list j has ``borders[j]:borders[j + 1]``. And their storage rows.
    labels, addresses, ids
        Of all storage rows.
    centres
        The mean of each list, (lists, d), is written there.
    P, facts, lane_addresses, lane_ids
        Panels, (panels, words, 16), their facts, (panels, 5, 16), and address and id of the row in each lane,
        (panels, 16). A lane without a row reaches nothing.
    """
    d, panel = X.shape[1], first
    float_facts = facts.view(np.float32)
    words = np.empty(P.shape[1], np.int32)
    x = np.empty(d, np.float32)
    for j in range(borders.shape[0] - 1):
        centres[j] = 0
        for r in range(borders[j], borders[j + 1]):
            for i in range(d):
                centres[j, i] += X[r, i]
        centres[j] /= max(1, borders[j + 1] - borders[j])
        for start in range(borders[j], borders[j + 1], LANES):
            for lane in range(LANES):
                r = start + lane
                if r >= borders[j + 1]:
                    P[panel, :, lane] = 0
                    facts[panel, :, lane] = 0
                    float_facts[panel, 2, lane] = -np.inf
                    facts[panel, 4, lane] = -1
                    continue
                for i in range(d):
                    x[i] = X[r, i] - centres[j, i]
                scale, length, error = encode(x, in_bytes, words)
                total = 0
                if in_bytes:
                    for i in range(words.view(np.int8).shape[0]):
                        total += words.view(np.int8)[i]
                for i in range(words.shape[0]):
                    P[panel, i, lane] = words[i]
                facts[panel, 0, lane] = -_ZERO * total
                float_facts[panel, 1, lane] = scale
                float_facts[panel, 2, lane] = error
                float_facts[panel, 3, lane] = length + error
                facts[panel, 4, lane] = labels[rows[r]]
                lane_addresses[panel, lane] = addresses[rows[r]]
                lane_ids[panel, lane] = ids[rows[r]]
            panel += 1


# --- scanning ---------------------------------------------------------------------------------------------------------


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
        First panel of each list and, last, the number of panels; and the panels, as from :func:`pack`.
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
    number = P.shape[1]
    words = np.empty((X.shape[0], number), np.int32)
    query_facts = np.empty((X.shape[0], 4), np.float32)
    along = np.empty(X.shape[0], np.float32)
    for q in range(X.shape[0]):
        query_facts[q, 0], query_facts[q, 1], query_facts[q, 2] = encode(X[q], in_bytes, words[q])
        if in_bytes:
            for i in range(number):
                words[q, i] ^= _AS_QUERY
    return _scan_encoded(
        X,
        words,
        query_facts,
        along,
        in_bytes,
        labels,
        groups,
        lists,
        starts,
        centres,
        P,
        facts,
        lane_addresses,
        lane_ids,
        codec,
        levels,
        slack,
        once,
        D,
        I,
    )


@kernel
def _scan_encoded(
    X: Floats,
    words: Words,
    query_facts: Floats,
    along: Floats,
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
    """Do what :func:`scan_groups` says, for queries in words; ``along``, (m,), is written over."""
    number = P.shape[1]
    hits = np.empty(8, np.int32)
    row = np.empty(X.shape[1], np.float32)
    # Addresses in place of slices, which would count references. All arrays but hits are the caller's, and stay alive.
    all_words, all_labels, all_facts = words.ctypes.data, labels.ctypes.data, query_facts.ctypes.data
    all_P, all_panel_facts, all_X = P.ctypes.data, facts.ctypes.data, X.ctypes.data
    all_D, all_I, all_centres, k, d = D.ctypes.data, I.ctypes.data, centres.ctypes.data, D.shape[1], X.shape[1]
    scored = 0
    for g in range(groups.shape[0] - 1):
        first, last = groups[g], groups[g + 1]
        single = labels[first] if (labels[first:last] == labels[first]).all() else _MIXED
        for j in lists[g]:
            if j < 0 or starts[j] == starts[j + 1]:
                continue
            for q in range(first, last):
                along[q] = product(row_at(all_X, q, d), row_at(all_centres, j, d)) + slack
                query_facts[q, 3] = D[q, 0] - along[q]
            for p in range(starts[j], starts[j + 1]):
                if facts[p, 4, 0] == single and facts[p, 4, LANES - 1] == single:
                    continue
                y = label_pointer(all_P + 4 * LANES * number * p)
                panel_facts = label_pointer(all_panel_facts + 4 * LANES * FACTS * p)
                q = first
                while q < last:
                    x = label_pointer(all_words + 4 * number * q)
                    own, about = label_pointer(all_labels + 4 * q), float_pointer(all_facts + 16 * q)
                    left = last - q
                    count = 8 if left >= 8 else 4 if left >= 4 else 2 if left >= 2 else 1
                    if in_bytes:
                        if count == 8:
                            found = _bytes_8(x, y, number, panel_facts, own, about, hits.ctypes)
                        elif count == 4:
                            found = _bytes_4(x, y, number, panel_facts, own, about, hits.ctypes)
                        elif count == 2:
                            found = _bytes_2(x, y, number, panel_facts, own, about, hits.ctypes)
                        else:
                            found = _bytes_1(x, y, number, panel_facts, own, about, hits.ctypes)
                    elif count == 8:
                        found = _floats_8(x, y, number, panel_facts, own, about, hits.ctypes)
                    elif count == 4:
                        found = _floats_4(x, y, number, panel_facts, own, about, hits.ctypes)
                    elif count == 2:
                        found = _floats_2(x, y, number, panel_facts, own, about, hits.ctypes)
                    else:
                        found = _floats_1(x, y, number, panel_facts, own, about, hits.ctypes)
                    if found:
                        for c in range(q, q + count):
                            mask = hits[c - q]
                            if mask == 0:
                                continue
                            x_row, D_row = row_at(all_X, c, d), row_at(all_D, c, k)
                            I_row = carray(int_pointer(all_I + 8 * k * c), (k,))
                            while mask != 0:
                                lane = _lowest(mask)
                                mask = np.int32(mask & (mask - 1))
                                if facts[p, 4, lane] < 0:  # infinite values in a damaged file reach anything
                                    continue
                                s = score(codec, levels, x_row, lane_addresses[p, lane], row)
                                if once:
                                    offer_once(D_row, I_row, s, lane_ids[p, lane])
                                else:
                                    offer(D_row, I_row, s, lane_ids[p, lane])
                                scored += 1
                            query_facts[c, 3] = D[c, 0] - along[c]
                    q += count
    return scored


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
    unit = np.empty_like(X)
    if not (is_label(label) and as_unit_row(X[0], unit[0])):
        return False
    labels, lists = np.full(1, label, np.int32), np.empty((1, nprobe), np.int64)
    return search_few(unit, labels, places, slack, lists, D, I)
