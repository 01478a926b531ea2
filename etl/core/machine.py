"""Words of the machine for numba functions: loads, stores and wide products at addresses given as int64.

Imported only by modules of loops, and so only to compile them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

_Emit: TypeAlias = "Callable[[Any, Any], Any]"
"""Writes LLVM instructions: builder and arguments in, result out."""
_Function = TypeVar("_Function", bound="Callable[..., int | tuple[int, ...]]")
WORD = ir.IntType(64)
BYTES = ir.IntType(8).as_pointer()


def _one(emit: _Emit) -> Callable[[int], int]:
    def operate(_typing: Any, _a: Any) -> Any:
        return types.int64(types.int64), lambda _context, builder, _sig, args: emit(builder, args)

    return cast("Callable[[int], int]", intrinsic(operate))


def _two(emit: _Emit) -> Callable[[int, int], int]:
    def operate(_typing: Any, _a: Any, _b: Any) -> Any:
        return types.int64(types.int64, types.int64), lambda _context, builder, _sig, args: emit(builder, args)

    return cast("Callable[[int, int], int]", intrinsic(operate))


def _three(emit: _Emit) -> Callable[[int, int, int], int]:
    def operate(_typing: Any, _a: Any, _b: Any, _c: Any) -> Any:
        signature = types.int64(types.int64, types.int64, types.int64)
        return signature, lambda _context, builder, _sig, args: emit(builder, args)

    return cast("Callable[[int, int, int], int]", intrinsic(operate))


def _load(bits: int, *, swap: bool, signed: bool = True) -> Callable[[int], int]:
    def emit(builder: Any, args: Any) -> Any:
        value = builder.load(builder.inttoptr(args[0], ir.IntType(bits).as_pointer()))
        value.align = 1
        if swap and bits > 8:
            value = builder.bswap(value)
        if bits == 64:
            return value
        return builder.sext(value, WORD) if signed else builder.zext(value, WORD)

    return _one(emit)


def _store(bits: int) -> Callable[[int, int], int]:
    def emit(builder: Any, args: Any) -> Any:
        value = args[1] if bits == 64 else builder.trunc(args[1], ir.IntType(bits))
        builder.store(value, builder.inttoptr(args[0], ir.IntType(bits).as_pointer())).align = 1
        return ir.Constant(WORD, 0)

    return _two(emit)


def _pointer(kind: Any, cell: Any) -> Callable[[int], Any]:
    def operate(_typing: Any, _a: Any) -> Any:
        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], cell.as_pointer())

        return types.CPointer(kind)(types.int64), codegen

    return cast("Callable[[int], Any]", intrinsic(operate))


def _mul_high(builder: Any, args: Any) -> Any:
    wide = ir.IntType(128)
    product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
    return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), WORD)


def _ratio(builder: Any, args: Any) -> Any:
    real = ir.DoubleType()
    found = builder.fdiv(builder.sitofp(args[0], real), builder.sitofp(args[1], real))
    return builder.bitcast(found, WORD)


def _product(builder: Any, args: Any) -> Any:
    real = ir.DoubleType()
    found = builder.fmul(builder.sitofp(args[0], real), builder.sitofp(args[1], real))
    return builder.bitcast(found, WORD)


def _below(builder: Any, args: Any) -> Any:
    return builder.zext(builder.icmp_unsigned("<", args[0], args[1]), WORD)


def _copy16(builder: Any, args: Any) -> Any:
    vector = ir.VectorType(ir.IntType(8), 16).as_pointer()
    value = builder.load(builder.inttoptr(args[1], vector))
    value.align = 1
    builder.store(value, builder.inttoptr(args[0], vector)).align = 1
    return ir.Constant(WORD, 0)


def _copy_bytes(builder: Any, args: Any) -> Any:
    target, source = builder.inttoptr(args[0], BYTES), builder.inttoptr(args[1], BYTES)
    cgutils.raw_memcpy(builder, target, source, args[2], 1, align=1)
    return ir.Constant(WORD, 0)


def _prefetch(builder: Any, args: Any) -> Any:
    number = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [BYTES, number, number, number])
    call = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    # To read, to be kept in all caches, of data: https://llvm.org/docs/LangRef.html#llvm-prefetch-intrinsic
    builder.call(call, [builder.inttoptr(args[0], BYTES), number(0), number(3), number(1)])
    return ir.Constant(WORD, 0)


load8 = _load(8, swap=False, signed=False)
be16 = _load(16, swap=True)
be32 = _load(32, swap=True)
be64 = _load(64, swap=True)
load64 = _load(64, swap=False)
int8s = _pointer(types.int8, ir.IntType(8))
"""The address as a pointer, of which LLVM can make vector loops: `int8s(at)[i]`; so the others."""
uint8s = _pointer(types.uint8, ir.IntType(8))
int16s = _pointer(types.int16, ir.IntType(16))
uint16s = _pointer(types.uint16, ir.IntType(16))
int32s = _pointer(types.int32, ir.IntType(32))
uint32s = _pointer(types.uint32, ir.IntType(32))
int64s = _pointer(types.int64, ir.IntType(64))
float32s = _pointer(types.float32, ir.FloatType())
float64s = _pointer(types.float64, ir.DoubleType())
store8 = _store(8)
store16 = _store(16)
store32 = _store(32)
store64 = _store(64)
ratio = _two(_ratio)
"""The bits of the float64 that is nearest to the quotient of two integers that float64 holds."""
product = _two(_product)
"""The bits of the float64 that is nearest to the product of two integers that float64 holds."""
mul_high = _two(_mul_high)
"""The upper 64 bits of a product, both factors taken as unsigned."""
below = _two(_below)
"""1 where the first is less than the second, both taken as unsigned."""
copy16 = _two(_copy16)
"""Copy 16 bytes to the first address from the second."""
copy_bytes = _three(_copy_bytes)
"""Copy to the first address from the second so many bytes."""
prefetch = _one(_prefetch)
"""Ask for the memory at an address, without waiting for it."""


def _apart(builder: Any, _args: Any) -> Any:
    # numba has no word for it: LLVM would copy everything into the one loop, which then spills its registers.
    builder.function.attributes.add("noinline")
    return ir.Constant(WORD, 0)


apart = _one(_apart)
"""Said in a function: its body stays out of its callers."""


def _signature(function: Callable[..., object]) -> Any:
    """One signature per function: else each mix of booleans and literals at a call is compiled anew."""
    result = types.int64 if "tuple" not in function.__annotations__["return"] else types.UniTuple(types.int64, 4)
    return result(*[types.int64] * function.__code__.co_argcount)


def near(function: _Function) -> _Function:
    """Compile a function into every place that calls it."""
    return cast("_Function", njit(_signature(function), error_model="numpy", forceinline=True)(function))


def far(function: _Function) -> _Function:
    """Compile a function once."""
    return cast("_Function", njit(_signature(function), error_model="numpy", forceinline=False)(function))
