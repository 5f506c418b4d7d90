"""A few queries against one panel: 16 rows that are interleaved, so that they meet a query in one pass.

LLVM code of what :mod:`cfe_faiss.search.panels` says of bounds. Its arguments are pointers, of which each function
takes

x, y, words
    The queries' words, one query after the other; the panel's words, (words, 16); how many there are.
facts
    Of each row of the panel, (7, 16): first sum, scale, error |x' - x^|, length |x^|; the part of the first sum that
    belongs to the words after the head, and the length of x' there; label.
own
    The queries' labels; only the first is read where all have one.
query_facts
    Of each query, (5,), each in units of its scale: length, error, 1, one number more, and its length after the head.
"""

from typing import Any

import llvmlite.binding as llvm  # type: ignore[import-untyped]
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LANES = 16
"""Rows of a panel."""

HAS_BYTES = bool(llvm.get_host_cpu_features().get("avx512vnni"))
"""Whether this processor multiplies bytes."""

_HAS_COMPRESS = bool(llvm.get_host_cpu_features().get("avx512f"))

FACTS, QUERY_FACTS = 7, 5
"""How many facts there are of a row of a panel, the label last, and of a query."""

EQUAL = 1 << 16
"""What each equal number adds to the count of those that are larger."""

_CHAINS = 8  # sums that are in flight at once

_FLOAT, _INT, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_FLOATS, _INTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT, LANES)
_FUSED = ("contract",)


def _reach(rows: int, in_bytes: bool, mixed: bool = False) -> Any:
    """Return an intrinsic that tells which rows of a panel may reach the thresholds of ``rows`` queries.

    The number more of each query is its threshold. For each query, the set of rows that may reach it and have another
    label is put at ``sets``. The intrinsic returns whether there is any; only then are the sets written. Bytes are
    looked at up to ``head`` words first, and the others only if a row could still reach a query by their lengths.
    """

    def reach(
        typingctx: Any, x: Any, y: Any, words: Any, head: Any, facts: Any, own: Any, query_facts: Any, sets: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, y, words, head, facts, own, query_facts, sets = args
            starts = [builder.gep(x, [builder.mul(words, _LONG(r))]) for r in range(rows)]
            whole = _load(builder, facts, 0, _INTS if in_bytes else _FLOATS)
            test, more, finish, write, end = (builder.append_basic_block() for _ in range(5))

            def reaching(sums: list[Any], with_rest: bool) -> tuple[list[Any], Any]:
                masks = []
                compared = _compare(builder, in_bytes, mixed, sums, facts, own, query_facts)
                for r, (product, bound, threshold, other) in enumerate(compared):
                    if with_rest:
                        length = _load(builder, facts, 5, _FLOATS)
                        rest = builder.fmul(length, _of_query(builder, query_facts, r, 4), flags=_FUSED)
                        bound = builder.fadd(bound, rest, flags=_FUSED)
                    reaches = builder.fcmp_ordered(">=", builder.fadd(product, bound, flags=_FUSED), threshold)
                    both = builder.and_(reaches, other)
                    masks.append(builder.zext(builder.bitcast(both, ir.IntType(LANES)), _INT))
                anything = masks[0]
                for mask in masks[1:]:
                    anything = builder.or_(anything, mask)
                return masks, builder.icmp_signed("!=", anything, _INT(0))

            rest = _load(builder, facts, 4, _INTS)
            first = builder.sub(whole, rest) if in_bytes else whole
            sums = _sums(builder, rows, in_bytes, starts, y, head, [first] * rows)
            after_head = builder.block
            builder.cbranch(builder.icmp_signed("==", head, words), finish, test)

            builder.position_at_end(test)
            _, may_reach = reaching(sums, with_rest=True)
            after_test = builder.block
            builder.cbranch(may_reach, more, end)

            builder.position_at_end(more)
            rest_starts = [builder.gep(start, [head]) for start in starts]
            rest_y = builder.gep(y, [builder.mul(head, _LONG(LANES))])
            so_far = [builder.add(total, rest) if in_bytes else total for total in sums]
            rest_sums = _sums(builder, rows, in_bytes, rest_starts, rest_y, builder.sub(words, head), so_far)
            after_more = builder.block
            builder.branch(finish)

            builder.position_at_end(finish)
            totals = []
            for total, rest_total in zip(sums, rest_sums, strict=True):
                totals.append(_either(builder, total, after_head, rest_total, after_more))
            masks, found = reaching(totals, with_rest=False)
            after_finish = builder.block
            builder.cbranch(found, write, end)

            builder.position_at_end(write)
            for r, mask in enumerate(masks):
                builder.store(mask, builder.gep(sets, [_LONG(r)]))
            builder.branch(end)

            builder.position_at_end(end)
            result = builder.phi(ir.IntType(1))
            for value, block in ((0, after_test), (0, after_finish), (1, write)):
                result.add_incoming(ir.IntType(1)(value), block)
            return result

        ints, floats, number = types.CPointer(types.int32), types.CPointer(types.float32), types.int64
        return types.boolean(ints, ints, number, number, ints, ints, floats, ints), generate

    return intrinsic(reach)


def _either(builder: Any, one: Any, from_one: Any, other: Any, from_other: Any) -> Any:
    """Return a value that was found in one of two blocks that lead here."""
    value = builder.phi(one.type)
    value.add_incoming(one, from_one)
    value.add_incoming(other, from_other)
    return value


def _raise_peaks(rows: int, in_bytes: bool, mixed: bool = False) -> Any:
    """Return an intrinsic that raises the peaks of ``rows`` queries to what the rows of a panel reach at least.

    The number more of each query is added to that. A query's peaks are 16 numbers, one for each lane, and begin
    ``stride`` numbers after those of the query before. What the rows reach at most is put at ``tops``, whose numbers of
    each query begin ``tops_stride`` after those of the query before; -inf for a row that is not eligible.
    """

    def raise_peaks(
        typingctx: Any,
        x: Any,
        y: Any,
        words: Any,
        facts: Any,
        own: Any,
        query_facts: Any,
        peaks: Any,
        stride: Any,
        tops: Any,
        tops_stride: Any,
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, y, words, facts, own, query_facts, peaks, stride, tops, tops_stride = args
            nothing = ir.Constant(_FLOATS, [float("-inf")] * LANES)
            starts = [builder.gep(x, [builder.mul(words, _LONG(r))]) for r in range(rows)]
            first = _load(builder, facts, 0, _INTS if in_bytes else _FLOATS)
            sums = _sums(builder, rows, in_bytes, starts, y, words, [first] * rows)
            compared = _compare(builder, in_bytes, mixed, sums, facts, own, query_facts)
            for r, (product, bound, offset, other) in enumerate(compared):
                place = builder.bitcast(builder.gep(peaks, [builder.mul(stride, _LONG(r))]), _FLOATS.as_pointer())
                before = builder.load(place, align=4)
                middle = builder.fadd(product, offset, flags=_FUSED)
                least = builder.fsub(middle, bound, flags=_FUSED)
                # Not where the numbers of a damaged file are NaN.
                higher = builder.and_(builder.fcmp_ordered(">", least, before), other)
                builder.store(builder.select(higher, least, before), place, align=4)
                top = builder.select(other, builder.fadd(middle, bound, flags=_FUSED), nothing)
                place = builder.gep(tops, [builder.mul(tops_stride, _LONG(r))])
                builder.store(top, builder.bitcast(place, _FLOATS.as_pointer()), align=4)
            return context.get_dummy_value()

        ints, floats = types.CPointer(types.int32), types.CPointer(types.float32)
        both = floats, types.int64
        return types.void(ints, ints, types.int64, ints, ints, floats, *both, *both), generate

    return intrinsic(raise_peaks)


def _products(rows: int) -> Any:
    """Return an intrinsic that writes the 16 products of ``rows`` queries with the rows of a panel of floats.

    Those of a query begin ``stride`` numbers after those of the query before.
    """

    def products(typingctx: Any, x: Any, y: Any, words: Any, out: Any, stride: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, y, words, out, stride = args
            starts = [builder.gep(x, [builder.mul(words, _LONG(r))]) for r in range(rows)]
            zero = ir.Constant(_FLOATS, [0.0] * LANES)
            for r, total in enumerate(_sums(builder, rows, False, starts, y, words, [zero] * rows)):
                place = builder.gep(out, [builder.mul(stride, _LONG(r))])
                builder.store(total, builder.bitcast(place, _FLOATS.as_pointer()), align=4)
            return context.get_dummy_value()

        ints, floats = types.CPointer(types.int32), types.CPointer(types.float32)
        return types.void(ints, ints, types.int64, floats, types.int64), generate

    return intrinsic(products)


def _compare(
    builder: Any, in_bytes: bool, mixed: bool, sums: list[Any], facts: Any, own: Any, query_facts: Any
) -> list[tuple[Any, Any, Any, Any]]:
    """Return for each query: its products with the rows, their bounds, its number more, and which rows are eligible.

    All but the last are in units of the query's scale.
    """
    scale, error, length = (_load(builder, facts, fact, _FLOATS) for fact in (1, 2, 3))
    labels = _load(builder, facts, 6, _INTS)
    known = builder.icmp_signed(">=", labels, ir.Constant(_INTS, [0] * LANES))
    eligible, compared = known, []
    for r, total in enumerate(sums):
        if mixed or r == 0:
            label = _broadcast(builder, builder.load(builder.gep(own, [_LONG(r)])), _INTS)
            eligible = builder.and_(known, builder.icmp_signed("!=", labels, label))
        own_length, own_error, more = (_of_query(builder, query_facts, r, fact) for fact in (0, 1, 3))
        bound = builder.fmul(length, own_error, flags=_FUSED)
        bound = builder.fadd(builder.fmul(error, own_length, flags=_FUSED), bound, flags=_FUSED)
        total = builder.sitofp(total, _FLOATS) if in_bytes else total
        compared.append((builder.fmul(total, scale, flags=_FUSED), bound, more, eligible))
    return compared


def _of_query(builder: Any, query_facts: Any, r: int, fact: int) -> Any:
    return _broadcast(builder, builder.load(builder.gep(query_facts, [_LONG(QUERY_FACTS * r + fact)])), _FLOATS)


def _sums(builder: Any, rows: int, in_bytes: bool, starts: list[Any], y: Any, words: Any, firsts: list[Any]) -> Any:
    """Return for each query the sums, to begin with given ones, of its products with the rows of a panel."""
    add = _add_bytes if in_bytes else _add_floats
    chains = _CHAINS // rows  # a sum waits for its last addition: a few queries take several sums each
    zero = ir.Constant(firsts[0].type, [0] * LANES)
    sums: list[Any] = [*firsts, *[zero] * (_CHAINS - rows)]
    place: Any = _LONG(0)
    for step in sorted({chains, 1}, reverse=True):
        sums, place = _add_words(builder, add, starts, y, words, step, sums, place)
    totals = sums[:rows]
    for r in range(rows):
        for later in sums[r + rows :: rows]:
            totals[r] = builder.add(totals[r], later) if in_bytes else builder.fadd(totals[r], later)
    return totals


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
    return _called(builder, "llvm.x86.avx512.vpdpbusd.512", _INTS, total, word, column)


def _add_floats(builder: Any, total: Any, word: Any, column: Any) -> Any:
    product = builder.fmul(builder.bitcast(word, _FLOATS), builder.bitcast(column, _FLOATS), flags=_FUSED)
    return builder.fadd(total, product, flags=_FUSED)


def _called(builder: Any, name: str, result: Any, *args: Any) -> Any:
    """Call an intrinsic of LLVM."""
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(result, [arg.type for arg in args]), name)
    return builder.call(function, args)


def _load(builder: Any, pointer: Any, row: int, kind: Any) -> Any:
    return builder.load(builder.bitcast(builder.gep(pointer, [_LONG(row * LANES)]), kind.as_pointer()), align=4)


def _broadcast(builder: Any, value: Any, kind: Any) -> Any:
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _INT(0))
    zeros = ir.Constant(ir.VectorType(_INT, LANES), [0] * LANES)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), zeros)


@intrinsic  # type: ignore[untyped-decorator]
def prefetch(typingctx: Any, address: Any) -> Any:
    """Ask for the cache line at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], ir.IntType(8).as_pointer())
        to_read, to_keep, data = _INT(0), _INT(3), _INT(1)
        _called(builder, "llvm.prefetch.p0", ir.VoidType(), pointer, to_read, to_keep, data)
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic  # type: ignore[untyped-decorator]
def put(typingctx: Any, mask: Any, first: Any, out: Any) -> Any:
    """Write ``first`` plus the number of each bit of 16 that is set, and return how many; 16 places are overwritten."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        mask, first, out = args
        mask = builder.trunc(mask, ir.IntType(LANES))
        lanes = builder.add(_broadcast(builder, first, _INTS), ir.Constant(_INTS, list(range(LANES))))
        lanes, bits = builder.bitcast(lanes, _INTS), ir.VectorType(ir.IntType(1), LANES)
        if _HAS_COMPRESS:
            zero = ir.Constant(_INTS, [0] * LANES)
            chosen = _called(
                builder, "llvm.x86.avx512.mask.compress.v16i32", _INTS, lanes, zero, builder.bitcast(mask, bits)
            )
            builder.store(chosen, builder.bitcast(out, _INTS.as_pointer()), align=4)
        else:
            name = "llvm.masked.compressstore.v16i32"
            _called(builder, name, ir.VoidType(), lanes, out, builder.bitcast(mask, bits))
        return builder.zext(builder.ctpop(mask), _LONG)

    return types.int64(types.int32, types.int32, types.CPointer(types.int32)), generate


@intrinsic  # type: ignore[untyped-decorator]
def at_least(typingctx: Any, row: Any, value: Any) -> Any:
    """Return which of 16 numbers are not less than a value, a bit for each."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        numbers = builder.load(builder.bitcast(args[0], _FLOATS.as_pointer()), align=4)
        mask = builder.fcmp_ordered(">=", numbers, _broadcast(builder, args[1], _FLOATS))
        return builder.zext(builder.bitcast(mask, ir.IntType(LANES)), _INT)

    return types.int32(types.CPointer(types.float32), types.float32), generate


@intrinsic  # type: ignore[untyped-decorator]
def count_above(typingctx: Any, row: Any, value: Any) -> Any:
    """Return how many of 16 numbers are larger than a value, and ``EQUAL`` times how many are equal to it."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        numbers = builder.load(builder.bitcast(args[0], _FLOATS.as_pointer()), align=4)
        value = _broadcast(builder, args[1], _FLOATS)
        counts = []
        for relation in (">", "=="):
            mask = builder.bitcast(builder.fcmp_ordered(relation, numbers, value), ir.IntType(LANES))
            counts.append(builder.zext(builder.ctpop(mask), _LONG))
        return builder.add(counts[0], builder.mul(counts[1], _LONG(EQUAL)))

    return types.int64(types.CPointer(types.float32), types.float32), generate


def _extreme(name: str) -> Any:
    """Return an intrinsic that gives the least ("fmin") or the largest ("fmax") of 16 numbers that are not -inf."""
    sign = "+" if name == "fmin" else "-"
    none = ir.Constant(_FLOATS, [float(f"{sign}inf")] * LANES)
    nothing = ir.Constant(_FLOATS, [float("-inf")] * LANES)

    def extreme(typingctx: Any, row: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            numbers = builder.load(builder.bitcast(args[0], _FLOATS.as_pointer()), align=4)
            some = builder.fcmp_ordered(">", numbers, nothing)
            return _called(builder, f"llvm.vector.reduce.{name}.v16f32", _FLOAT, builder.select(some, numbers, none))

        return types.float32(types.CPointer(types.float32)), generate

    return intrinsic(extreme)


smallest, largest = _extreme("fmin"), _extreme("fmax")
products_1, products_8 = _products(1), _products(8)
# Queries of one label, or as many with labels of their own.
reach_floats_1, reach_floats_2, reach_floats_4, reach_floats_8 = (_reach(rows, False) for rows in (1, 2, 4, 8))
raise_floats_1, raise_floats_4, raise_floats_8 = (_raise_peaks(rows, False) for rows in (1, 4, 8))
reach_mixed_floats, raise_mixed_floats = _reach(8, False, True), _raise_peaks(8, False, True)
# Where the instruction is missing these are never called, but have to be compiled.
reach_bytes_1, reach_bytes_2, reach_bytes_4, reach_bytes_8 = (_reach(rows, HAS_BYTES) for rows in (1, 2, 4, 8))
raise_bytes_1, raise_bytes_4, raise_bytes_8 = (_raise_peaks(rows, HAS_BYTES) for rows in (1, 4, 8))
reach_mixed_bytes, raise_mixed_bytes = _reach(8, HAS_BYTES, True), _raise_peaks(8, HAS_BYTES, True)
