"""Three loops as vectors, where a compiler makes scalars or branches of them.

LLVM unrolls a loop of known length before it looks for vectors, and keeps sums in memory that a loop of unknown length
adds to. So they are written in vector operations of its own language, which it compiles for any processor.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from core.trie import VECTOR

_BYTE, _INT, _LONG, _FLOAT = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
_BYTES, _INTS, _FLOATS = (ir.VectorType(kind, VECTOR) for kind in (_BYTE, _INT, _FLOAT))
LANES = 32  # parts that scores are cut into to bound the largest
_MAXIMA, _COUNTS = ir.VectorType(_FLOAT, LANES), ir.VectorType(_INT, LANES)
_DENSE = VECTOR // 2  # 16-bit places that a dense row takes
_LANES = ir.Constant(_INTS, list(range(VECTOR)))


def _spread(builder: Any, number: Any, kind: Any) -> Any:
    """A vector with one number in all lanes."""
    nothing = ir.Constant(kind, ir.Undefined)
    vector = builder.insert_element(nothing, number, ir.Constant(_INT, 0))
    return _lane(builder, vector, 0)


def _lane(builder: Any, vector: Any, lane: int) -> Any:
    """A vector with one of its numbers in all lanes."""
    everywhere = ir.Constant(ir.VectorType(_INT, vector.type.count), [lane] * vector.type.count)
    return builder.shuffle_vector(vector, vector, everywhere)


def _weights(builder: Any, entry: Any, size: Any, start: Any, stop: Any) -> Any:
    """A row's weights as integers, whether it is dense, has one entry or none. The array is read beyond the row, but
    not beyond its own size."""

    def number(n: int, kind: Any = _LONG) -> Any:
        return ir.Constant(kind, n)

    def place(room: int) -> Any:
        last = builder.sub(size, number(room))
        return builder.gep(entry, [builder.select(builder.icmp_signed("<", start, last), start, last)])

    length = builder.sub(stop, start)
    dense = builder.sext(builder.load(builder.bitcast(place(_DENSE), _BYTES.as_pointer()), align=2), _INTS)
    packed = builder.zext(builder.load(place(1)), _INT)
    weight = builder.sext(builder.trunc(packed, _BYTE), _INT)
    weight = builder.select(builder.icmp_signed("==", length, number(0)), number(0, _INT), weight)
    edge = _spread(builder, builder.lshr(packed, number(8, _INT)), _INTS)
    here = builder.icmp_signed("==", _LANES, edge)
    single = builder.select(here, _spread(builder, weight, _INTS), ir.Constant(_INTS, None))
    return builder.select(builder.icmp_signed("==", length, number(_DENSE)), dense, single)


@intrinsic
def add_rows_of_one_vector(
    typing_context: Any, entry: Any, starts: Any, stops: Any, xs: Any, first: Any, last: Any, value: Any, at: Any
) -> Any:
    """value[at + e] = Σ weight · x over the rows first … last − 1 of a pool, e < 16, in their order.

    `entry` are 16-bit entries, eight at least; a row is dense (eight of them), or has one, or none.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = [context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 1, 2, 3, 6)]
        entry, starts, stops, xs, value = (array.data for array in made)
        size = builder.extract_value(made[0].shape, 0)
        total = cgutils.alloca_once_value(builder, ir.Constant(_FLOATS, None))
        with cgutils.for_range(builder, arguments[5], start=arguments[4]) as loop:
            j = loop.index
            start, stop = builder.load(builder.gep(starts, [j])), builder.load(builder.gep(stops, [j]))
            weights = builder.sitofp(_weights(builder, entry, size, start, stop), _FLOATS)
            x = _spread(builder, builder.load(builder.gep(xs, [j])), _FLOATS)
            builder.store(
                builder.fadd(builder.fmul(x, weights, flags=["fast"]), builder.load(total), flags=["fast"]), total
            )
        out = builder.bitcast(builder.gep(value, [arguments[7]]), _FLOATS.as_pointer())
        builder.store(builder.load(total), out, align=4)
        return context.get_dummy_value()

    return types.void(entry, starts, stops, xs, types.int64, types.int64, value, types.int64), generate


@intrinsic
def add_vectors(typing_context: Any, vectors: Any, rows: Any, xs: Any, n: Any, value: Any) -> Any:
    """value[e] = Σ weight · x over n rows, e < 16, in their order; row r > 0 is vectors[16 · (r − 1):16 · r]."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = [context.make_array(signature.args[i])(context, builder, arguments[i]) for i in (0, 1, 2, 4)]
        vectors, rows, xs, value = (array.data for array in made)
        total = cgutils.alloca_once_value(builder, ir.Constant(_FLOATS, None))
        with cgutils.for_range(builder, arguments[3]) as loop:
            row = builder.zext(builder.load(builder.gep(rows, [loop.index])), _LONG)
            at = builder.mul(builder.sub(row, ir.Constant(_LONG, 1)), ir.Constant(_LONG, VECTOR))
            bytes_of = builder.bitcast(builder.gep(vectors, [at]), _BYTES.as_pointer())
            weights = builder.sitofp(builder.load(bytes_of, align=2), _FLOATS)
            x = _spread(builder, builder.load(builder.gep(xs, [loop.index])), _FLOATS)
            builder.store(builder.fadd(builder.load(total), builder.fmul(x, weights)), total)
        builder.store(builder.load(total), builder.bitcast(value, _FLOATS.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(vectors, rows, xs, types.int64, value), generate


@intrinsic
def bound_of_largest(typing_context: Any, scores: Any, n: Any, most: Any) -> Any:
    """A number that at least `most` ≤ 32 of n scores reach, and not many more where `most` is small: the most-th
    largest of the maxima of 32 parts, found by counting for each of them how many are larger. Scores are not negative,
    and followed by zeros up to a multiple of 32.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        best = cgutils.alloca_once_value(builder, ir.Constant(_MAXIMA, None))
        with cgutils.for_range_slice(
            builder, ir.Constant(_LONG, 0), arguments[1], ir.Constant(_LONG, LANES), inc=True
        ) as (i, _):
            some = builder.load(builder.bitcast(builder.gep(data, [i]), _MAXIMA.as_pointer()), align=4)
            so_far = builder.load(best)
            builder.store(builder.select(builder.fcmp_ordered(">", some, so_far), some, so_far), best)
        maxima, larger = builder.load(best), ir.Constant(_COUNTS, None)
        for lane in range(LANES):
            beaten = builder.fcmp_ordered("<", maxima, _lane(builder, maxima, lane))
            larger = builder.add(larger, builder.zext(beaten, _COUNTS))
        few = builder.icmp_signed("<", larger, _spread(builder, builder.trunc(arguments[2], _INT), _COUNTS))
        kept = builder.select(few, maxima, ir.Constant(_MAXIMA, [float("inf")] * LANES))
        width = LANES
        while width > 1:  # the least of a vector is that of the lesser of its halves
            width //= 2
            halves = [
                builder.shuffle_vector(kept, kept, ir.Constant(ir.VectorType(_INT, width), list(lanes)))
                for lanes in (range(width), range(width, 2 * width))
            ]
            kept = builder.select(builder.fcmp_ordered("<", *halves), *halves)
        return builder.extract_element(kept, ir.Constant(_INT, 0))

    return types.float32(scores, types.int64, types.int64), generate
