"""CRC-32C and CRC-32 as numba functions, to be called from other kernels over bytes that are already in the cache.

The CPU's own crc32 instruction is used where the compiler's target has it; a table-driven form works everywhere.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import config
from numba.extending import intrinsic

from sidecar.logformat.compiling import native
from sidecar.logformat.crc import folding
from sidecar.logformat.crc.folding import CASTAGNOLI, IEEE, slicing_table, zeros_operator
from sidecar.logformat.loads import Word, address_of, load_le_u64, load_u8

LONG_LANE_BYTES = 8192
SHORT_LANE_BYTES = 256

_LONG_SHIFT = zeros_operator(LONG_LANE_BYTES)
_SHORT_SHIFT = zeros_operator(SHORT_LANE_BYTES)
_CASTAGNOLI_TABLE = slicing_table(CASTAGNOLI)
_IEEE_TABLE = slicing_table(IEEE)

INSTRUCTION = {
    # name of the LLVM intrinsic for 8 bytes and for 1, widths of state and operand of each
    "x86": (("llvm.x86.sse42.crc32.64.64", 64, 64), ("llvm.x86.sse42.crc32.32.8", 32, 8)),
    "arm": (("llvm.aarch64.crc32cx", 32, 64), ("llvm.aarch64.crc32cb", 32, 32)),
}

_BELOW_CRC32 = frozenset({"sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2"})
"""LLVM's names of features without which an x86 target has no crc32 instruction either."""


def instruction_set(triple: str, cpu_name: str | None, features: dict[str, bool]) -> str | None:
    """Which crc32 instructions a compiler target has: "x86", "arm" or None.

    A target named by the user counts only if its name promises the instruction: asking LLVM for an instruction
    that the target lacks ends the process.
    """
    if cpu_name not in (None, "", "host"):
        kept = features.get("sse4.2", True) and features.get("crc32", True)
        return "x86" if kept and cpu_name in ("x86-64-v2", "x86-64-v3", "x86-64-v4") else None
    if triple.startswith(("x86_64", "amd64")) and features.get("sse4.2") and features.get("crc32", True):
        return "x86"
    return "arm" if triple.startswith(("aarch64", "arm64")) and features.get("crc") else None


def usable_features(host: dict[str, bool], asked: str | None) -> dict[str, bool]:
    """What code may use: the processor's features, or what the user gives the compiler instead ("+this,-that").

    Then a feature counts only if it is promised and none that it needs is taken away: asking LLVM for an instruction that
    the target lacks ends the process. Source: numba, JITCPUCodegen._get_host_cpu_features.
    """
    if asked is None:
        return host
    flags = [flag.strip() for flag in asked.split(",")]
    taken = {flag[1:] for flag in flags if flag.startswith("-")}
    if taken & _BELOW_CRC32:
        taken |= {"crc32", "sse4.2"}
    if "avx" in taken:
        taken.add("avx2")
    promised = {flag[1:] for flag in flags if flag.startswith("+")}
    return {name: host.get(name, False) for name in promised - taken} | dict.fromkeys(taken, False)


def emit_step(builder: Any, instruction: tuple[str, int, int], state: Any, operand: Any) -> Any:
    """Append the crc32 instruction to `builder`'s block; state and result are 64 bits wide, the upper half zero."""
    name, state_bits, operand_bits = instruction
    state_type, operand_type = ir.IntType(state_bits), ir.IntType(operand_bits)
    narrow = builder.trunc(state, state_type) if state_bits < 64 else state
    if operand.type.width < operand_bits:
        operand = builder.zext(operand, operand_type)
    function = builder.module.declare_intrinsic(name, (), ir.FunctionType(state_type, [state_type, operand_type]))
    result = builder.call(function, [narrow, operand])
    return builder.zext(result, ir.IntType(64)) if state_bits < 64 else result


def _step(instruction: tuple[str, int, int], operand_type: Any) -> Any:
    @intrinsic
    def step(_typing: Any, _state: Any, _operand: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return emit_step(builder, instruction, arguments[0], arguments[1])

        return types.uint64(types.uint64, operand_type), generate

    return step


@native
def _crc_by_table(table: Any, begin: Word, end: Word, crc: Word) -> Word:
    """CRC of the bytes at addresses `[begin, end)`, continuing from `crc`; `table` decides the polynomial."""
    state = np.uint32(np.uint32(crc) ^ np.uint32(0xFFFFFFFF))
    at = np.int64(begin)
    while at + np.int64(8) <= np.int64(end):
        word = load_le_u64(at) ^ np.uint64(state)
        state = np.uint32(
            table[7, np.intp(word & np.uint64(0xFF))]
            ^ table[6, np.intp((word >> np.uint64(8)) & np.uint64(0xFF))]
            ^ table[5, np.intp((word >> np.uint64(16)) & np.uint64(0xFF))]
            ^ table[4, np.intp((word >> np.uint64(24)) & np.uint64(0xFF))]
            ^ table[3, np.intp((word >> np.uint64(32)) & np.uint64(0xFF))]
            ^ table[2, np.intp((word >> np.uint64(40)) & np.uint64(0xFF))]
            ^ table[1, np.intp((word >> np.uint64(48)) & np.uint64(0xFF))]
            ^ table[0, np.intp(word >> np.uint64(56))]
        )
        at += np.int64(8)
    while at < np.int64(end):
        index = np.intp((state ^ np.uint32(load_u8(at))) & np.uint32(0xFF))
        state = np.uint32(table[0, index] ^ np.uint32(state >> np.uint32(8)))
        at += np.int64(1)
    return np.uint32(state ^ np.uint32(0xFFFFFFFF))


@native
def crc32c_portable(begin: Word, end: Word, crc: Word) -> Word:
    """CRC-32C of the bytes at addresses `[begin, end)`, continuing from `crc` (0 at first), on any CPU."""
    return _crc_by_table(_CASTAGNOLI_TABLE, begin, end, crc)


@native
def crc32_ieee(begin: Word, end: Word, crc: Word) -> Word:
    """CRC-32 of the bytes at addresses `[begin, end)`, continuing from `crc`: the checksum of legacy messages."""
    return _crc_by_table(_IEEE_TABLE, begin, end, crc)


TARGET = (
    llvmlite.binding.get_process_triple(),
    config.CPU_NAME,  # type: ignore[attr-defined]  # numba gives its config these names at run time
    usable_features(dict(llvmlite.binding.get_host_cpu_features()), config.CPU_FEATURES),  # type: ignore[attr-defined]  # as above
)
INSTRUCTIONS = instruction_set(*TARGET)
# The functions below are compiled at their first call, so without the instruction they are never compiled at all.
_step_8 = _step(INSTRUCTION[INSTRUCTIONS or "x86"][0], types.uint64)
_step_1 = _step(INSTRUCTION[INSTRUCTIONS or "x86"][1], types.uint8)


@native
def _append_zeros(table: Any, state: Word) -> Word:
    return np.uint64(
        table[0, np.intp(state & np.uint64(0xFF))]
        ^ table[1, np.intp((state >> np.uint64(8)) & np.uint64(0xFF))]
        ^ table[2, np.intp((state >> np.uint64(16)) & np.uint64(0xFF))]
        ^ table[3, np.intp((state >> np.uint64(24)) & np.uint64(0xFF))]
    )


@native
def _three_lanes(begin: Word, lane_bytes: Word, table: Any, state: Word) -> Word:
    first = np.uint64(state)
    second = np.uint64(0)
    third = np.uint64(0)
    lane = np.int64(lane_bytes)
    for at in range(np.int64(begin), np.int64(begin) + lane, np.int64(8)):
        first = _step_8(first, load_le_u64(at))
        second = _step_8(second, load_le_u64(at + lane))
        third = _step_8(third, load_le_u64(at + lane + lane))
    joined = np.uint64(_append_zeros(table, first)) ^ second
    return np.uint64(np.uint64(_append_zeros(table, joined)) ^ third)


@native
def _by_instruction(begin: Word, end: Word, state: Word) -> Word:
    """The state after the bytes: three independent lanes hide the instruction's latency, then are folded into one state."""
    state = np.uint64(state)
    at = np.int64(begin)
    while at + np.int64(3 * LONG_LANE_BYTES) <= np.int64(end):
        state = np.uint64(_three_lanes(at, np.int64(LONG_LANE_BYTES), _LONG_SHIFT, state))
        at += np.int64(3 * LONG_LANE_BYTES)
    while at + np.int64(3 * SHORT_LANE_BYTES) <= np.int64(end):
        state = np.uint64(_three_lanes(at, np.int64(SHORT_LANE_BYTES), _SHORT_SHIFT, state))
        at += np.int64(3 * SHORT_LANE_BYTES)
    while at + np.int64(8) <= np.int64(end):
        state = _step_8(state, load_le_u64(at))
        at += np.int64(8)
    while at < np.int64(end):
        state = _step_1(state, load_u8(at))
        at += np.int64(1)
    return np.uint64(state)


@native
def crc32c_hardware(begin: Word, end: Word, crc: Word) -> Word:
    """CRC-32C by the CPU's instruction."""
    state = np.uint64(np.uint64(np.uint32(crc)) ^ np.uint64(0xFFFFFFFF))
    return np.uint32(np.uint64(_by_instruction(begin, end, state)) ^ np.uint64(0xFFFFFFFF))


LONG_STEPS, SHORT_STEPS = 64, 8
_long_block, _short_block = folding.block_of(LONG_STEPS), folding.block_of(SHORT_STEPS)
LONG_BLOCK_BYTES, SHORT_BLOCK_BYTES = LONG_STEPS * folding.BLOCK_STEP_BYTES, SHORT_STEPS * folding.BLOCK_STEP_BYTES
_LONG_FOLDED_SHIFT = zeros_operator(LONG_STEPS * folding.FOLDED_STEP_BYTES)
_LONG_FOLDED_LANE_SHIFT = zeros_operator(LONG_STEPS * folding.LANE_STEP_BYTES)
_SHORT_FOLDED_SHIFT = zeros_operator(SHORT_STEPS * folding.FOLDED_STEP_BYTES)
_SHORT_FOLDED_LANE_SHIFT = zeros_operator(SHORT_STEPS * folding.LANE_STEP_BYTES)


@native
def _joined(lane_table: Any, folded_table: Any, first: Word, second: Word, third: Word, folded: Word) -> Word:
    """The state after a block, from those of its stretches."""
    joined = np.uint64(_append_zeros(lane_table, np.uint64(first))) ^ np.uint64(second)
    joined = np.uint64(_append_zeros(lane_table, joined)) ^ np.uint64(third)
    return np.uint64(np.uint64(_append_zeros(folded_table, joined)) ^ np.uint64(folded))


@native
def crc32c_folding(begin: Word, end: Word, crc: Word) -> Word:
    """CRC-32C by the CPU's instruction and by carry-less multiplication at the same time."""
    state = np.uint64(np.uint64(np.uint32(crc)) ^ np.uint64(0xFFFFFFFF))
    at = np.int64(begin)
    while at + np.int64(LONG_BLOCK_BYTES) <= np.int64(end):
        first, second, third, folded = _long_block(at, state)
        state = np.uint64(_joined(_LONG_FOLDED_LANE_SHIFT, _LONG_FOLDED_SHIFT, first, second, third, folded))
        at += np.int64(LONG_BLOCK_BYTES)
    while at + np.int64(SHORT_BLOCK_BYTES) <= np.int64(end):
        first, second, third, folded = _short_block(at, state)
        state = np.uint64(_joined(_SHORT_FOLDED_LANE_SHIFT, _SHORT_FOLDED_SHIFT, first, second, third, folded))
        at += np.int64(SHORT_BLOCK_BYTES)
    return np.uint32(np.uint64(_by_instruction(at, end, state)) ^ np.uint64(0xFFFFFFFF))


def _fastest() -> Any:
    if INSTRUCTIONS is None:
        return crc32c_portable
    return crc32c_folding if folding.can_fold(*TARGET) else crc32c_hardware


crc32c = _fastest()
"""CRC-32C of the bytes at addresses `[begin, end)`, continuing from `crc` (0 at first), in the fastest form the target has."""

_ZEROS = np.array([zeros_operator(1 << bit) for bit in range(31)])
"""What as many zero bytes do to a CRC-32C as each bit of a batch's size is worth, (31, 4, 256)."""


@native
def crc32c_combined(first: Word, second: Word, second_bytes: Word) -> Word:
    """CRC-32C of two stretches in a row, from the CRC of each and the length of the second, below 2^31."""
    crc, left, bit = np.uint64(np.uint32(first)), np.uint64(second_bytes), np.intp(0)
    while left:
        if left & np.uint64(1):
            crc = np.uint64(
                _ZEROS[bit, 0, np.intp(crc & np.uint64(0xFF))]
                ^ _ZEROS[bit, 1, np.intp((crc >> np.uint64(8)) & np.uint64(0xFF))]
                ^ _ZEROS[bit, 2, np.intp((crc >> np.uint64(16)) & np.uint64(0xFF))]
                ^ _ZEROS[bit, 3, np.intp((crc >> np.uint64(24)) & np.uint64(0xFF))]
            )
        left >>= np.uint64(1)
        bit += 1
    return np.uint32(crc ^ np.uint64(np.uint32(second)))


@native
def checksum(magic: Word, buffer: Any, crc: Word) -> Word:
    """Checksum of a whole uint8 array, continuing from `crc`: CRC-32C for magic 2, CRC-32 below."""
    begin = address_of(buffer)
    end = begin + np.int64(buffer.shape[0])
    return crc32c(begin, end, crc) if np.int64(magic) == np.int64(2) else crc32_ieee(begin, end, crc)
