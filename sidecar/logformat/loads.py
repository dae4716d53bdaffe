"""Loads, stores and copies at addresses, inside kernels: an array in hand costs two atomic counts per call, a number nothing.

Callers have checked every bound.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

Word = Any
"""An integer of numba: its width is in the casts, which numba needs and mypy cannot follow."""


def _address_of() -> Any:
    """Address of an array's first byte. Numbers carry no reference counts, whose updates cost more than a header walk."""

    @intrinsic
    def address(_typing: Any, buffer: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            return builder.ptrtoint(array.data, ir.IntType(64))

        return types.int64(buffer), generate

    return address


def loader(result: Any, *, big_endian: bool = False) -> Any:
    """An unaligned load of one integer at an address; the caller has checked that its bytes are there."""

    @intrinsic
    def load(_typing: Any, _address: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            pointer = builder.inttoptr(arguments[0], ir.IntType(result.bitwidth).as_pointer())
            word = builder.load(pointer, align=1)
            return builder.bswap(word) if big_endian else word

        return result(types.int64), generate

    return load


address_of = _address_of()
load_le_u64 = loader(types.uint64)
load_be_i64 = loader(types.int64, big_endian=True)
load_be_i32 = loader(types.int32, big_endian=True)
load_be_u32 = loader(types.uint32, big_endian=True)
load_be_i16 = loader(types.int16, big_endian=True)
load_i8 = loader(types.int8)
load_u8 = loader(types.uint8)


def _storer(kind: Any, *, big_endian: bool) -> Any:
    @intrinsic
    def store(_typing: Any, _address: Any, _value: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            value = builder.bswap(arguments[1]) if big_endian else arguments[1]
            pointer = builder.inttoptr(arguments[0], ir.IntType(kind.bitwidth).as_pointer())
            builder.store(value, pointer, align=1)
            return context.get_dummy_value()

        return types.none(types.int64, kind), generate

    return store


def _prefetch() -> Any:
    @intrinsic
    def prefetch(_typing: Any, _address: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
            function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
            # For writing, to be kept in all caches, data.
            builder.call(function, [builder.inttoptr(arguments[0], byte), word(1), word(3), word(1)])
            return context.get_dummy_value()

        return types.none(types.int64), generate

    return prefetch


def _copy() -> Any:
    @intrinsic
    def copy(_typing: Any, _target: Any, _source: Any, _size: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            byte = ir.IntType(8).as_pointer()
            function = builder.module.declare_intrinsic("llvm.memcpy", [byte, byte, ir.IntType(64)])
            target, source = (builder.inttoptr(argument, byte) for argument in arguments[:2])
            builder.call(function, [target, source, arguments[2], ir.IntType(1)(0)])
            return context.get_dummy_value()

        return types.none(types.int64, types.int64, types.int64), generate

    return copy


load_word = loader(types.uint64)
"""Eight bytes as the CPU orders them."""
load_int = loader(types.int64)
load_half = loader(types.uint32)
store_word = _storer(types.uint64, big_endian=False)
store_int = _storer(types.int64, big_endian=False)
store_byte = _storer(types.uint8, big_endian=False)
store_be_i64 = _storer(types.int64, big_endian=True)
store_be_i32 = _storer(types.int32, big_endian=True)
store_be_u32 = _storer(types.uint32, big_endian=True)
store_be_i16 = _storer(types.int16, big_endian=True)
prefetch = _prefetch()
copy = _copy()
"""(target, source, size): the ranges must not overlap, unless they are the same one."""
