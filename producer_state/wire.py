"""Fixed binary layouts declared once, as annotated dataclasses; and the base of this package's errors.

A `Layout` reads the annotations of a frozen dataclass, builds the big-endian struct, and derives size and offsets,
so that a wire table is in exactly one place.
"""

from __future__ import annotations

import struct
from dataclasses import fields
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

Bool = Annotated[bool, "?"]
Int8 = Annotated[int, "b"]
Int16 = Annotated[int, "h"]
Int32 = Annotated[int, "i"]
UInt32 = Annotated[int, "I"]
Int64 = Annotated[int, "q"]

Row = TypeVar("Row")


class ProducerStateError(Exception):
    """Base of all errors raised on purpose by this package."""


class Layout(Generic[Row]):
    """Reads and writes one fixed-size row type.

    All integers are big-endian two's complement without padding, as in Kafka's log, index and snapshot files.
    """

    def __init__(self, row_type: type[Row]) -> None:
        """Args: row_type: a dataclass whose every field is one of the annotated types of this module."""
        hints = get_type_hints(row_type, include_extras=True)
        codes: dict[str, str] = {}
        for field in fields(row_type):  # type: ignore[arg-type]  # that Row is a dataclass cannot be said
            annotation = hints[field.name]
            if get_origin(annotation) is not Annotated:
                raise TypeError(f"{row_type.__name__}.{field.name} has no wire type")
            codes[field.name] = get_args(annotation)[1]
        self.row_type, self._names = row_type, tuple(codes)
        self.struct = struct.Struct(">" + "".join(codes.values()))
        self.size_bytes = self.struct.size
        self._dtypes = {order: np.dtype([(name, order + code) for name, code in codes.items()]) for order in (">", "=")}

    def offset_of(self, name: str) -> int:
        return self._dtypes["="].fields[name][1]  # type: ignore[index]  # a record has fields

    def dtype(self, byte_order: Literal[">", "="] = ">") -> np.dtype[np.void]:
        """The row as a NumPy record without padding: ">" as it lies in files, "=" for arithmetic."""
        return self._dtypes[byte_order]

    def read(self, buffer: bytes | bytearray | memoryview, position: int = 0) -> Row:
        """Decode the row at `position`; the caller has checked that `size_bytes` bytes are there."""
        values: tuple[Any, ...] = self.struct.unpack_from(buffer, position)
        return self.row_type(*values)

    def write(self, row: Row) -> bytes:
        return self.struct.pack(*(getattr(row, name) for name in self._names))  # dataclasses.astuple copies deeply
