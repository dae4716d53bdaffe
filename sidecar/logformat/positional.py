"""An open file that is read at positions, by Python and by kernels."""

from __future__ import annotations

import os


class PositionalFile:
    """A descriptor as `ReadAt`; the caller owns it. `kernels_reading` reads such a file without calling back into Python.

    Byte 0 for its callers is byte `start_position` of the file.
    """

    __slots__ = ("descriptor", "start_position")

    def __init__(self, descriptor: int, start_position: int = 0) -> None:
        self.descriptor = descriptor
        self.start_position = start_position

    def __call__(self, position: int, buffer: memoryview) -> int:
        """See `ReadAt`. Raises OSError."""
        return os.preadv(self.descriptor, [buffer], self.start_position + position)
