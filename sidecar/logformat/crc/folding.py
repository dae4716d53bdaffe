"""CRC-32C at twice the speed of the crc32 instruction: half of the bytes by carry-less multiplication, at the same time.

Both run in different units of the processor. A block is four stretches: three lanes of crc32 instructions, then one that is
folded. Its 128 bytes are a polynomial. Multiplying it by x^1024 modulo the checksum's moves it 128 bytes further back, where the
next ones are added. The 128 bytes that are left have the remainder of the whole stretch.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

VECTORS: Final = 4
VECTOR_BYTES: Final = 32
FOLDED_STEP_BYTES: Final = VECTORS * VECTOR_BYTES
LANES: Final = 3
LANE_STEP_WORDS: Final = 4
LANE_STEP_BYTES: Final = LANE_STEP_WORDS * 8
BLOCK_STEP_BYTES: Final = LANES * LANE_STEP_BYTES + FOLDED_STEP_BYTES
"""A block of n steps has n times as many: n times `LANE_STEP_BYTES` in each lane, then n times `FOLDED_STEP_BYTES`."""

NEEDED: Final = ("sse4.2", "pclmul", "avx2", "vpclmulqdq")
"""What LLVM calls the processor's features without which asking for these instructions ends the process."""

_WORD: Final = ir.IntType(64)
_VECTOR: Final = ir.VectorType(_WORD, 4)


def can_fold(triple: str, cpu_name: str | None, features: dict[str, bool]) -> bool:
    """Whether a compiler target has the instructions. One that the user names has them not: no level promises them."""
    host = cpu_name in (None, "", "host")
    return host and triple.startswith(("x86_64", "amd64")) and all(features.get(name) for name in NEEDED)


def power_of_x(exponent: int) -> int:
    """x^exponent modulo the polynomial, the coefficient of x^i at bit 31-i."""
    remainder = 0x80000000
    for _ in range(exponent):
        remainder = (remainder >> 1) ^ (CASTAGNOLI if remainder & 1 else 0)
    return remainder


def folding_constants(distance_bytes: int) -> tuple[int, int]:
    """Factors for the lower and the upper half of 16 bytes that move back so far.

    The product of two reflected 64-bit words lies one bit too low in 128: hence one power of x less.
    """
    bits = 8 * distance_bytes
    return power_of_x(bits + 63) << 32, power_of_x(bits - 1) << 32


def block_of(steps: int) -> Any:
    """The kernel of one block of so many steps at an address: the states of lane 1, which began with `state`, of lanes 2
    and 3, and of the folded stretch.

    Processor and compiler must have the instructions: see `can_fold`.
    """

    @intrinsic
    def block(_typing: Any, _address: Any, _state: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            states = emit_block(builder, steps, *arguments)
            return context.make_tuple(builder, signature.return_type, states)

        states = types.UniTuple(types.uint64, LANES + 1)  # type: ignore[no-untyped-call]  # numba has no types
        return states(types.int64, types.uint64), generate

    return block


def emit_block(builder: Any, steps: int, address: Any, state: Any) -> list[Any]:
    """See `block_of`."""
    zero = ir.Constant(_WORD, 0)
    entry = builder.block
    loop, after = builder.append_basic_block("fold"), builder.append_basic_block("folded")
    builder.branch(loop)
    builder.position_at_end(loop)
    step = _phi(builder, _WORD, zero, entry)
    lanes = [_phi(builder, _WORD, state if lane == 0 else zero, entry) for lane in range(LANES)]
    folded = [_phi(builder, _VECTOR, ir.Constant(_VECTOR, [0] * 4), entry) for _ in range(VECTORS)]
    next_lanes = _lanes_step(builder, steps, address, step, lanes)
    next_folded = _folded_step(builder, steps, address, step, folded)
    following = builder.add(step, ir.Constant(_WORD, 1))
    for phi, value in zip((step, *lanes, *folded), (following, *next_lanes, *next_folded), strict=True):
        phi.add_incoming(value, loop)
    builder.cbranch(builder.icmp_unsigned("<", following, ir.Constant(_WORD, steps)), loop, after)
    builder.position_at_end(after)
    remainder: Any = zero
    for vector in next_folded:
        for index in range(4):
            remainder = _crc(builder, remainder, builder.extract_element(vector, ir.Constant(ir.IntType(32), index)))
    return [*next_lanes, remainder]


def _phi(builder: Any, kind: Any, initial: Any, entry: Any) -> Any:
    phi = builder.phi(kind)
    phi.add_incoming(initial, entry)
    return phi


def _lanes_step(builder: Any, steps: int, address: Any, step: Any, lanes: list[Any]) -> list[Any]:
    here = builder.add(address, builder.mul(step, ir.Constant(_WORD, LANE_STEP_BYTES)))
    for word in range(LANE_STEP_WORDS):
        for lane in range(LANES):
            loaded = _load(builder, _WORD, here, lane * steps * LANE_STEP_BYTES + word * 8)
            lanes = [*lanes[:lane], _crc(builder, lanes[lane], loaded), *lanes[lane + 1 :]]
    return lanes


def _folded_step(builder: Any, steps: int, address: Any, step: Any, folded: list[Any]) -> list[Any]:
    here = builder.add(address, builder.mul(step, ir.Constant(_WORD, FOLDED_STEP_BYTES)))
    lower, upper = folding_constants(FOLDED_STEP_BYTES)
    factors = ir.Constant(_VECTOR, [lower, upper] * 2)
    return [
        builder.xor(
            builder.xor(_multiplied(builder, vector, factors, 0x00), _multiplied(builder, vector, factors, 0x11)),
            _load(builder, _VECTOR, here, LANES * steps * LANE_STEP_BYTES + index * VECTOR_BYTES),
        )
        for index, vector in enumerate(folded)
    ]


def _load(builder: Any, kind: Any, address: Any, distance_bytes: int) -> Any:
    place = builder.add(address, ir.Constant(_WORD, distance_bytes))
    return builder.load(builder.inttoptr(place, kind.as_pointer()), align=1)


def _multiplied(builder: Any, vector: Any, factors: Any, halves: int) -> Any:
    kind = ir.FunctionType(_VECTOR, [_VECTOR, _VECTOR, ir.IntType(8)])
    function = builder.module.declare_intrinsic("llvm.x86.pclmulqdq.256", (), kind)
    return builder.call(function, [vector, factors, ir.Constant(ir.IntType(8), halves)])


def _crc(builder: Any, state: Any, word: Any) -> Any:
    kind = ir.FunctionType(_WORD, [_WORD, _WORD])
    function = builder.module.declare_intrinsic("llvm.x86.sse42.crc32.64.64", (), kind)
    return builder.call(function, [state, word])


CASTAGNOLI = 0x82F63B78
IEEE = 0xEDB88320


def zeros_operator(zero_bytes: int) -> npt.NDArray[np.uint32]:
    """What appending `zero_bytes` (a power of two) zero bytes does to a CRC-32C state, as a (4, 256) table by state byte."""
    bits = np.arange(32, dtype=np.uint32)
    columns = np.uint32(1) << bits
    for _ in range(8):
        columns = (columns >> np.uint32(1)) ^ np.where(columns & np.uint32(1), np.uint32(CASTAGNOLI), np.uint32(0))
    applied_bytes = 1
    while applied_bytes < zero_bytes:
        columns = _apply(columns, columns)
        applied_bytes *= 2
    states = np.arange(256, dtype=np.uint32)[None, :] << (np.uint32(8) * np.arange(4, dtype=np.uint32)[:, None])
    return _apply(columns, states.ravel()).reshape(4, 256)


def _apply(columns: npt.NDArray[np.uint32], states: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """The linear map whose image of bit n is `columns[n]`, of each state."""
    chosen = (states[:, None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1)
    return np.asarray(np.bitwise_xor.reduce(np.where(chosen, columns, np.uint32(0)), axis=1), dtype=np.uint32)


def slicing_table(polynomial: int) -> npt.NDArray[np.uint32]:
    """Tables for eight bytes a step, (8, 256): row k is the effect of a byte that k more bytes follow."""
    table = np.empty((8, 256), dtype=np.uint32)
    state = np.arange(256, dtype=np.uint32)
    for row in range(8):
        for _ in range(8):
            state = (state >> np.uint32(1)) ^ np.where(state & np.uint32(1), np.uint32(polynomial), np.uint32(0))
        table[row] = state
    return table
