"""A vector of floats as a Numba type: explicit SIMD code from Python.

    v = load(p)
    w = load(p + VBYTES)
    store(q, fma(v, w, splat(s)))

Pointers are byte addresses (int64). Numba's own vectoriser gives up on kernels with many streams, because
it has to check every pair of pointers for overlap; here there is nothing to find out. LLVM maps the vector
to whatever the processor has: one zmm or ymm register, or several smaller ones.
"""
# mypy: ignore-errors

from __future__ import annotations

import operator

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from undertow.kernels.cpu.target import target

LANES = target().lanes
VBYTES = 4 * LANES

FLOAT, DOUBLE, I32, I64 = ir.FloatType(), ir.DoubleType(), ir.IntType(32), ir.IntType(64)
VECTOR = ir.VectorType(FLOAT, LANES)
ZERO = ir.Constant(VECTOR, [0.0] * LANES)


class FloatVector(types.Type):
    """LANES floats in a register."""

    def __init__(self):
        super().__init__(name="FloatVector")


vector = FloatVector()


@register_model(FloatVector)
class _Model(models.PrimitiveModel):
    def __init__(self, manager, frontend_type):
        super().__init__(manager, frontend_type, VECTOR)


# ---- building blocks of LLVM code, shared with micro.py ---------------------------------------------
def pointer(builder, address, element=VECTOR):
    return builder.inttoptr(address, element.as_pointer())


def splat_value(builder, scalar):
    undefined = ir.Constant(VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, LANES), [0] * LANES))


def lanes_below(builder, count):
    """Mask of the lanes with index < count (an int64, may be negative or beyond the last lane)."""
    wide = ir.VectorType(I64, LANES)
    undefined = ir.Constant(wide, ir.Undefined)
    first = builder.insert_element(undefined, count, ir.Constant(I32, 0))
    counts = builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(I32, LANES), [0] * LANES))
    return builder.icmp_signed("<", ir.Constant(wide, list(range(LANES))), counts)


def masked_load(builder, address, mask):
    """Load of the lanes in the mask, zero elsewhere; the other lanes' memory is not touched."""
    bits = ir.VectorType(ir.IntType(1), LANES)
    kind = ir.FunctionType(VECTOR, [VECTOR.as_pointer(), I32, bits, VECTOR])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.load.v{LANES}f32.p0")
    return builder.call(function, [pointer(builder, address), ir.Constant(I32, 4), mask, ZERO])


def masked_store(builder, address, value, mask):
    bits = ir.VectorType(ir.IntType(1), LANES)
    kind = ir.FunctionType(ir.VoidType(), [VECTOR, VECTOR.as_pointer(), I32, bits])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.v{LANES}f32.p0")
    builder.call(function, [value, pointer(builder, address), ir.Constant(I32, 4), mask])


def fma_value(builder, a, b, c):
    kind = ir.FunctionType(VECTOR, [VECTOR] * 3)
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32"), [a, b, c])


def prefetch_value(builder, address, closeness, to_write=0):
    """Ask for the cache line at an address; closeness 3: into the first cache, 2: into the second."""
    kind = ir.FunctionType(ir.VoidType(), [VECTOR.as_pointer(), I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [pointer(builder, address), *(ir.Constant(I32, n) for n in (to_write, closeness, 1))])


# ---- memory -----------------------------------------------------------------------------------------
@intrinsic
def load(typingctx, p):
    """LANES floats at p, any alignment."""

    def codegen(context, builder, sig, args):
        return builder.load(pointer(builder, args[0]), align=4)

    return vector(p), codegen


@intrinsic
def store(typingctx, p, v):
    def codegen(context, builder, sig, args):
        builder.store(args[1], pointer(builder, args[0]), align=4)
        return context.get_dummy_value()

    return types.void(p, vector), codegen


def load_row(n):
    """An intrinsic (p, step): the n vectors at p, p + step, ... as a tuple."""

    @intrinsic
    def load_row(typingctx, p, step):
        def codegen(context, builder, sig, args):
            at = [builder.add(args[0], builder.mul(args[1], ir.Constant(I64, k))) for k in range(n)]
            row = [builder.load(pointer(builder, address), align=4) for address in at]
            return context.make_tuple(builder, sig.return_type, row)

        return types.UniTuple(vector, n)(types.int64, types.int64), codegen

    return load_row


def store_row(n):
    """An intrinsic (p, step, vectors): a tuple of n vectors to p, p + step, ..."""

    @intrinsic
    def store_row(typingctx, p, step, vectors):
        def codegen(context, builder, sig, args):
            for k in range(n):
                address = builder.add(args[0], builder.mul(args[1], ir.Constant(I64, k)))
                builder.store(builder.extract_value(args[2], k), pointer(builder, address), align=4)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.UniTuple(vector, n)), codegen

    return store_row


def choose(numbers):
    """An intrinsic: the members of a tuple of vectors that have these numbers, as a tuple."""

    @intrinsic
    def choose(typingctx, vectors):
        def codegen(context, builder, sig, args):
            chosen = [builder.extract_value(args[0], k) for k in numbers]
            return context.make_tuple(builder, sig.return_type, chosen)

        return types.UniTuple(vector, len(numbers))(vectors), codegen

    return choose


@intrinsic
def load_part(typingctx, p, n):
    """The first n floats at p (all if n >= LANES), zeros behind them; nothing beyond them is read."""

    def codegen(context, builder, sig, args):
        result = cgutils.alloca_once(builder, VECTOR)
        whole = builder.icmp_signed(">=", args[1], ir.Constant(I64, LANES))
        with builder.if_else(whole) as (yes, no):
            with yes:
                builder.store(builder.load(pointer(builder, args[0]), align=4), result)
            with no:
                builder.store(masked_load(builder, args[0], lanes_below(builder, args[1])), result)
        return builder.load(result)

    return vector(types.int64, types.int64), codegen


@intrinsic
def store_part(typingctx, p, v, n):
    """The first n lanes of v to p (all if n >= LANES); nothing beyond them is written."""

    def codegen(context, builder, sig, args):
        whole = builder.icmp_signed(">=", args[2], ir.Constant(I64, LANES))
        with builder.if_else(whole) as (yes, no):
            with yes:
                builder.store(args[1], pointer(builder, args[0]), align=4)
            with no:
                masked_store(builder, args[0], args[1], lanes_below(builder, args[2]))
        return context.get_dummy_value()

    return types.void(types.int64, vector, types.int64), codegen


@intrinsic
def load_float(typingctx, p):
    def codegen(context, builder, sig, args):
        return builder.load(pointer(builder, args[0], FLOAT), align=4)

    return types.float32(p), codegen


@intrinsic
def store_float(typingctx, p, v):
    def codegen(context, builder, sig, args):
        builder.store(args[1], pointer(builder, args[0], FLOAT), align=4)
        return context.get_dummy_value()

    return types.void(p, types.float32), codegen


@intrinsic
def load_double(typingctx, p):
    def codegen(context, builder, sig, args):
        return builder.load(pointer(builder, args[0], DOUBLE), align=8)

    return types.float64(p), codegen


@intrinsic
def store_double(typingctx, p, v):
    def codegen(context, builder, sig, args):
        builder.store(args[1], pointer(builder, args[0], DOUBLE), align=8)
        return context.get_dummy_value()

    return types.void(p, types.float64), codegen


@intrinsic
def load_int(typingctx, p):
    """An int64 at p."""

    def codegen(context, builder, sig, args):
        return builder.load(pointer(builder, args[0], I64), align=8)

    return types.int64(p), codegen


@intrinsic
def store_int(typingctx, p, v):
    def codegen(context, builder, sig, args):
        builder.store(args[1], pointer(builder, args[0], I64), align=8)
        return context.get_dummy_value()

    return types.void(p, types.int64), codegen


@intrinsic
def prefetch(typingctx, p):
    """Ask for the cache line at p; harmless for any address."""

    def codegen(context, builder, sig, args):
        prefetch_value(builder, args[0], 3)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@intrinsic
def claim(typingctx, p):
    """Ask for the cache line at p to write to it; harmless for any address."""

    def codegen(context, builder, sig, args):
        prefetch_value(builder, args[0], 3, to_write=1)
        return context.get_dummy_value()

    return types.void(types.int64), codegen


# ---- values -----------------------------------------------------------------------------------------
@intrinsic
def splat(typingctx, s):
    """All lanes equal to the float32 s."""

    def codegen(context, builder, sig, args):
        return splat_value(builder, args[0])

    return vector(types.float32), codegen


@intrinsic
def zero(typingctx):
    def codegen(context, builder, sig, args):
        return ZERO

    return vector(), codegen


@intrinsic
def fma(typingctx, a, b, c):
    """a * b + c, rounded once."""

    def codegen(context, builder, sig, args):
        return fma_value(builder, *args)

    return vector(vector, vector, vector), codegen


@intrinsic
def tell_nan(typingctx, v, p):
    """The int64 at p becomes 1 where a lane of v is NaN; p may be 0, for nobody who wants to know."""

    def codegen(context, builder, sig, args):
        v, p = args
        lanes = builder.bitcast(builder.fcmp_unordered("uno", v, v), ir.IntType(LANES))
        found = builder.icmp_unsigned("!=", lanes, ir.Constant(ir.IntType(LANES), 0))
        wanted = builder.icmp_unsigned("!=", p, ir.Constant(I64, 0))
        with builder.if_then(builder.and_(found, wanted), likely=False):
            builder.store(ir.Constant(I64, 1), pointer(builder, p, I64))
        return context.get_dummy_value()

    return types.void(vector, types.int64), codegen


def _select(name, predicate):
    """Per lane: a where `x predicate y`, else b; false where x or y is NaN."""

    @intrinsic
    def select(typingctx, x, y, a, b):
        def codegen(context, builder, sig, args):
            return builder.select(builder.fcmp_ordered(predicate, args[0], args[1]), args[2], args[3])

        return vector(vector, vector, vector, vector), codegen

    select.__name__ = name
    return select


where_greater = _select("where_greater", ">")
where_equal = _select("where_equal", "==")


# Registered as builtins: an @overload would run Numba's inliner at every use, which takes most of the
# compilation time.
def _binary(op, instruction):
    @infer_global(op)
    class _Typing(ConcreteTemplate):
        cases = (signature(vector, vector, vector),)

    @lower_builtin(op, vector, vector)
    def _lower(context, builder, sig, args):
        return getattr(builder, instruction)(*args, flags=("contract",))


for _op, _instruction in (
    (operator.add, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _binary(_op, _instruction)


_FLOATS8 = ir.VectorType(FLOAT, 8)
_PAIRS = ([0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15])
_QUADS = ([0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15])
_HALVES = ([0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15])


@intrinsic
def transpose8(typingctx, source, source_step, target_, target_step):
    """Transpose 8 x 8 floats; the steps are the bytes between rows on either side."""

    def codegen(context, builder, sig, args):
        source, source_step, target_, target_step = args

        def row(base, step, k):
            return pointer(builder, builder.add(base, builder.mul(step, ir.Constant(I64, k))), _FLOATS8)

        def shuffle(a, b, order):
            return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, 8), order))

        r = [builder.load(row(source, source_step, k), align=4) for k in range(8)]
        t = [shuffle(r[k], r[k + 1], order) for k in (0, 2, 4, 6) for order in _PAIRS]
        u = [shuffle(t[k], t[k + 2], order) for k in (0, 1, 4, 5) for order in _QUADS]
        for k in range(8):
            v = shuffle(u[k % 4], u[k % 4 + 4], _HALVES[k // 4])
            builder.store(v, row(target_, target_step, k), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), codegen


@intrinsic
def weave3(typingctx, source, plane, target_):
    """8 floats of each of three planes, `plane` bytes apart, one after the other in turns: 24 dense floats."""

    def codegen(context, builder, sig, args):
        source, plane, target_ = args
        starts = [builder.add(source, builder.mul(plane, ir.Constant(I64, k))) for k in range(3)]
        a, b, c = (builder.load(pointer(builder, start, _FLOATS8), align=4) for start in starts)
        for first in range(0, 24, 8):
            places = [(k % 3, k // 3) for k in range(first, first + 8)]
            two = [8 * min(which, 1) + k for which, k in places]
            all_three = [8 + k if which == 2 else i for i, (which, k) in enumerate(places)]
            v = a
            for other, order in ((b, two), (c, all_three)):
                v = builder.shuffle_vector(v, other, ir.Constant(ir.VectorType(I32, 8), order))
            at = builder.add(target_, ir.Constant(I64, 4 * first))
            builder.store(v, pointer(builder, at, _FLOATS8), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def copy8(typingctx, source, target_):
    """Copy 8 floats."""

    def codegen(context, builder, sig, args):
        value = builder.load(pointer(builder, args[0], _FLOATS8), align=4)
        builder.store(value, pointer(builder, args[1], _FLOATS8), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


# ---- integers in the lanes, for indexes and exponents ------------------------------------------------
_INTS = ir.VectorType(I32, LANES)


@intrinsic
def splat_int(typingctx, n):
    """A vector whose lanes hold the bits of the int32 n."""

    def codegen(context, builder, sig, args):
        return splat_value(builder, builder.bitcast(builder.trunc(args[0], I32), FLOAT))

    return vector(types.int64), codegen


@intrinsic
def where_same_bits(typingctx, x, y, a, b):
    """Per lane: a where x and y have the same bits, else b."""

    def codegen(context, builder, sig, args):
        x, y = (builder.bitcast(v, _INTS) for v in args[:2])
        return builder.select(builder.icmp_signed("==", x, y), args[2], args[3])

    return vector(vector, vector, vector, vector), codegen


@intrinsic
def where_wins(typingctx, x, y, a, b):
    """Per lane: a where x is larger than y or a NaN while y is none, else b."""

    def codegen(context, builder, sig, args):
        x, y, a, b = args
        wins = builder.and_(builder.fcmp_unordered(">", x, y), builder.fcmp_ordered("ord", y, y))
        return builder.select(wins, a, b)

    return vector(vector, vector, vector, vector), codegen


@intrinsic
def power_of_two(typingctx, t):
    """2^n from t = n + 1.5 * 2^23, n a whole number from -126 to 127: n stands in the low bits of t."""

    def codegen(context, builder, sig, args):
        bits = builder.shl(builder.bitcast(args[0], _INTS), ir.Constant(_INTS, [23] * LANES))
        bits = builder.add(bits, ir.Constant(_INTS, [127 << 23] * LANES))
        return builder.bitcast(bits, VECTOR)

    return vector(vector), codegen
