"""SHA-256 (FIPS 180-4) of many short messages at once, eight side by side in the lanes of a vector.

The loop is written as vector code for LLVM and made into machine code when `hashing` first asks for it, in about a
tenth of a second: nothing is kept on disk, and numba is not needed. Calls go through ctypes, which lets go of the
interpreter lock.
"""

from __future__ import annotations

import ctypes
import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import llvmlite.binding as llvm
from llvmlite import ir

if TYPE_CHECKING:
    from collections.abc import Callable

LANES = 8
SLACK = 64
"""Readable bytes that must follow the data: messages are read 64 bytes at a time."""

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_WORD = ir.VectorType(_I32, LANES)
_BYTES = ir.VectorType(_I8, 64)
_lock = threading.Lock()
_loaded: list[Kernel] = []


@dataclass(frozen=True, slots=True)
class Kernel:
    """The compiled loop. `engine` keeps its code in memory."""

    call: Callable[..., None]
    engine: Any


def load() -> Kernel:
    """The loop of this process, compiled at the first call."""
    with _lock:
        if not _loaded:
            _loaded.append(_compiled())
        return _loaded[0]


def _primes(count: int) -> list[int]:
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % p for p in found):
            found.append(number)
        number += 1
    return found


def _cube_root(number: int) -> int:
    """The whole part of a cube root, exact."""
    low, high = 0, 1 << (number.bit_length() // 3 + 1)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**3 <= number else (low, middle)
    return low


# The first 32 bits of the fractions of square and cube roots of the first primes (FIPS 180-4, 4.2.2 and 5.3.3).
START = [math.isqrt(p << 64) & 0xFFFFFFFF for p in _primes(8)]
ROUND = [_cube_root(p << 96) & 0xFFFFFFFF for p in _primes(64)]


def _compiled() -> Kernel:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(str(_module()))
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    shape = ctypes.CFUNCTYPE(None, *([ctypes.c_int64] * 6))
    return Kernel(shape(engine.get_function_address("first_words")), engine)


class _Loop:
    """A loop of at least one turn under construction: its body is what is built inside the `with`.

    Attributes:
        turn: Its counter, int64.
        state: What is carried from turn to turn, as it is at the beginning of one.
        next: The same as it is at the end of one; after the loop, what came out.
    """

    def __init__(self, build: ir.IRBuilder, count: Any, state: tuple[Any, ...] = ()) -> None:
        self._build = build
        self._count = count
        before = build.block
        self._body = build.append_basic_block("body")
        build.branch(self._body)
        build.position_at_end(self._body)
        self.turn = build.phi(_I64)
        self.turn.add_incoming(_I64(0), before)
        self.state = tuple(build.phi(one.type) for one in state)
        for phi, one in zip(self.state, state, strict=True):
            phi.add_incoming(one, before)
        self.next: tuple[Any, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        build = self._build
        after = build.add(self.turn, _I64(1))
        self.turn.add_incoming(after, build.block)
        for phi, one in zip(self.state, self.next, strict=True):
            phi.add_incoming(one, build.block)
        done = build.append_basic_block("done")
        build.cbranch(build.icmp_unsigned("<", after, self._count), self._body, done)
        build.position_at_end(done)


def _module() -> Any:
    """`first_words(data, offsets, indices, count, blocks, out)`: all int64, the first three and the last addresses.

    Of the messages at `indices` (int64 [count], count > 0), each of `blocks` blocks with its padding, the first eight
    bytes of the digest as a number, to out (uint64, at the same index). Message i is data[offsets[i]:offsets[i + 1]].
    """
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_I64] * 6), "first_words")
    data, offsets, indices, count, blocks, out = function.args
    rotate = ir.Function(module, ir.FunctionType(_WORD, [_WORD] * 3), "llvm.fshr.v8i32")
    swap = ir.Function(module, ir.FunctionType(_WORD, [_WORD]), "llvm.bswap.v8i32")
    build = ir.IRBuilder(function.append_basic_block("entry"))
    block = build.alloca(ir.ArrayType(_I8, 64 * LANES))
    block.align = 64
    schedule = build.alloca(ir.ArrayType(_WORD, 16))
    constants = ir.GlobalVariable(module, ir.ArrayType(_I32, 64), "rounds")
    constants.global_constant = True
    constants.initializer = ir.Constant(constants.value_type, [_I32(k) for k in ROUND])
    base = build.ptrtoint(block, _I64)
    groups = build.udiv(build.add(count, _I64(LANES - 1)), _I64(LANES))
    iota = ir.Constant(_BYTES, [_I8(i) for i in range(64)])

    def same(value: int) -> Any:
        return ir.Constant(_WORD, [_I32(value)] * LANES)

    def at(address: Any, kind: Any) -> Any:
        return build.inttoptr(address, kind.as_pointer())

    def number(table: Any, index: Any) -> Any:
        return build.load(at(build.add(table, build.shl(index, _I64(3))), _I64))

    def spread(value: Any) -> Any:
        nothing = ir.Constant(_BYTES, ir.Undefined)
        one = build.insert_element(nothing, value, _I32(0))
        return build.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_I32, 64), None))

    def everywhere(value: Any) -> Any:
        nothing = ir.Constant(_WORD, ir.Undefined)
        return build.shuffle_vector(build.insert_element(nothing, value, _I32(0)), nothing, ir.Constant(_WORD, None))

    def message(place: Any) -> Any:
        """Which message is at a place; those places of the last group that have none do its last one again."""
        inside = build.icmp_unsigned("<", place, count)
        return number(indices, build.select(inside, place, build.sub(count, _I64(1))))

    def turned(value: Any, bits: int) -> Any:
        return build.call(rotate, [value, value, same(bits)])

    def mixed(value: Any, first: int, second: int, third: Any) -> Any:
        return build.xor(build.xor(turned(value, first), turned(value, second)), third)

    with _Loop(build, groups) as outer:
        first = build.shl(outer.turn, _I64(3))
        with _Loop(build, blocks, tuple(same(h) for h in START)) as chain:
            last = build.icmp_unsigned("==", chain.turn, build.sub(blocks, _I64(1)))
            begun = build.shl(chain.turn, _I64(6))
            with _Loop(build, _I64(LANES)) as lanes:
                index = message(build.add(first, lanes.turn))
                start = number(offsets, index)
                length = build.sub(number(offsets, build.add(index, _I64(1))), start)
                left = build.sub(length, begun)
                over = build.icmp_signed("<", left, _I64(0))
                capped = build.select(build.icmp_signed("<", left, _I64(64)), left, _I64(64))
                # A block without bytes of the message is not read: it may lie beyond the slack.
                source = build.select(over, base, build.add(build.add(data, start), begun))
                raw = build.load(at(source, _BYTES), align=1)
                kept = spread(build.trunc(build.select(over, _I64(0), capped), _I8))
                raw = build.select(build.icmp_unsigned("<", iota, kept), raw, ir.Constant(_BYTES, None))
                # The one bit behind the message; no place of this block is 64.
                end = spread(build.trunc(build.select(over, _I64(64), capped), _I8))
                mark = ir.Constant(_BYTES, [_I8(0x80)] * 64)
                raw = build.select(build.icmp_unsigned("==", iota, end), mark, raw)
                here = build.add(base, build.shl(lanes.turn, _I64(6)))
                build.store(raw, at(here, _BYTES), align=64)
                tail = at(build.add(here, _I64(56)), _I64)
                bits = build.bswap(build.shl(length, _I64(3)))
                build.store(build.select(last, bits, build.load(tail)), tail)
            with _Loop(build, _I64(16)) as across:
                word: Any = ir.Constant(_WORD, ir.Undefined)
                place = build.add(base, build.shl(across.turn, _I64(2)))
                for lane in range(LANES):
                    one = build.load(at(build.add(place, _I64(64 * lane)), _I32))
                    word = build.insert_element(word, one, _I32(lane))
                build.store(build.call(swap, [word]), build.gep(schedule, [_I64(0), across.turn]))
            begin = [build.load(build.gep(schedule, [_I64(0), _I64(t)])) for t in range(16)]
            # Four turns of sixteen rounds: all 64 written out take four times as long to compile and run no faster.
            with _Loop(build, _I64(4), (*chain.state, *begin)) as rounds:
                a, b, c, d, e, f, g, h, *words = rounds.state
                for t in range(16):
                    constant = build.gep(constants, [_I64(0), build.add(build.shl(rounds.turn, _I64(4)), _I64(t))])
                    known = build.add(words[t], everywhere(build.load(constant)))
                    chosen = build.xor(g, build.and_(e, build.xor(f, g)))
                    one = build.add(build.add(h, mixed(e, 6, 11, turned(e, 25))), build.add(known, chosen))
                    most = build.or_(build.and_(a, b), build.and_(c, build.or_(a, b)))
                    two = build.add(mixed(a, 2, 13, turned(a, 22)), most)
                    a, b, c, d, e, f, g, h = build.add(one, two), a, b, c, build.add(d, one), e, f, g
                for t in range(16):
                    low = mixed(words[t + 1], 7, 18, build.lshr(words[t + 1], same(3)))
                    high = mixed(words[t + 14], 17, 19, build.lshr(words[t + 14], same(10)))
                    words.append(build.add(build.add(words[t], low), build.add(words[t + 9], high)))
                rounds.next = (a, b, c, d, e, f, g, h, *words[16:])
            chain.next = tuple(build.add(x, y) for x, y in zip(chain.state, rounds.next, strict=False))
        for lane in range(LANES):
            index = message(build.add(first, _I64(lane)))
            high, low = (build.zext(build.extract_element(chain.next[i], _I32(lane)), _I64) for i in (0, 1))
            target = at(build.add(out, build.shl(index, _I64(3))), _I64)
            build.store(build.or_(build.shl(high, _I64(32)), low), target)
    build.ret_void()
    return module
