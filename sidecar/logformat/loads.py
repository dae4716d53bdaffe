"""Reading integers at addresses, inside kernels: an array in hand costs two atomic counts per call, a number nothing."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

Word = Any
"""An integer of numba: its width stands in the casts, which numba needs and mypy cannot follow."""


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
