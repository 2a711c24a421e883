"""Loads and stores at addresses, for the compiled scanner.

numba arrays check signs and carry shapes; the scanner wants a byte, a word or sixteen comparisons at an
address. Every caller proves its bounds: the scanner stops PADDING bytes before the end of its input.
"""

# numba reads the types of these functions from the signatures below, not from annotations.
from __future__ import annotations

# mypy: ignore-errors
# numba finds the types; all of them are int64.
import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic


def compiled(function):
    """A function of int64 to machine code, now. `machine_code` keeps the result, so numba need not."""
    signature = (types.int64,) * function.__code__.co_argcount
    return numba.njit(
        signature, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True
    )(function)


_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


def _pointer(builder, address, to):
    return builder.inttoptr(address, to.as_pointer())


def _loader(width, result, name):
    def load(_typing, _address):
        def codegen(_context, builder, _signature, args):
            value = builder.load(_pointer(builder, args[0], width), align=1)
            return builder.zext(value, _I64) if width is not _I64 else value

        return result(types.int64), codegen

    load.__name__ = name
    return intrinsic(load)


def _storer(width, name):
    def store(_typing, _address, _value):
        def codegen(context, builder, _signature, args):
            word = args[1] if width is _I64 else builder.trunc(args[1], width)
            builder.store(word, _pointer(builder, args[0], width), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    store.__name__ = name
    return intrinsic(store)


load8 = _loader(_I8, types.int64, "load8")
load16 = _loader(_I16, types.int64, "load16")
load32 = _loader(_I32, types.int64, "load32")
load64 = _loader(_I64, types.int64, "load64")
store8 = _storer(_I8, "store8")
store16 = _storer(_I16, "store16")
store32 = _storer(_I32, "store32")
store64 = _storer(_I64, "store64")


def _mask_of(chars, invert, name):
    """Sixteen bytes at an address to a bit each: whether the byte is one of `chars` (or is none)."""
    vector = ir.VectorType(_I8, 16)

    def mask(_typing, _address):
        def codegen(_context, builder, _signature, args):
            data = builder.load(_pointer(builder, args[0], vector), align=1)
            hits = None
            for char in chars:
                same = builder.icmp_unsigned("==", data, ir.Constant(vector, [char] * 16))
                hits = same if hits is None else builder.or_(hits, same)
            bits = builder.zext(builder.bitcast(hits, ir.IntType(16)), _I64)
            return builder.xor(bits, ir.Constant(_I64, 0xFFFF)) if invert else bits

        return types.int64(types.int64), codegen

    mask.__name__ = name
    return intrinsic(mask)


mask_string_end = _mask_of(b'"\\', False, "mask_string_end")
mask_not_space = _mask_of(b" \t\r\n", True, "mask_not_space")


@intrinsic
def lowest_bit(_typing, _bits):
    """Position of the lowest set bit; the bits may not be 0."""

    def codegen(_context, builder, _signature, args):
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.int64), codegen


@intrinsic
def shift_right(_typing, _bits, _count):
    """Logical shift; int64 in numba shifts the sign in."""

    def codegen(_context, builder, _signature, args):
        return builder.lshr(args[0], args[1])

    return types.int64(types.int64, types.int64), codegen
