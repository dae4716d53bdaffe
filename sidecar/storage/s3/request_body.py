"""Bodies of S3 requests that act while they are sent: paused before their end, or paced by a limit."""

import os
from collections.abc import Callable
from typing import Any

from sidecar.storage.bandwidth import BandwidthLimit

_LAST_BYTES = 1024
"""The paused part. What goes before fills the buffers with which a server may begin before it reads its objects."""


class RequestBody:
    """Bytes in memory that botocore and urllib3 may rewind. `_is_sent`: who reads now is the connection, not who signs."""

    def __init__(self, body: bytes | bytearray | memoryview) -> None:
        self._body = memoryview(body)
        self._position = 0
        self._is_sent = False

    def begin_sending(self) -> None:
        """From now on the reader is the connection; before it, who signs the request may read all of it."""
        self._is_sent = True

    def __len__(self) -> int:
        return len(self._body)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As files do: botocore and urllib3 also find the length by it."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: len(self._body)}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        end = len(self._body) if size is None or size < 0 else self._position + size
        block = bytes(self._body[self._position : end])
        self._position += len(block)
        return block


class PacedBody(RequestBody):
    """Takes its bytes from a limit block by block once it is sent, so that a part is no burst."""

    def __init__(self, body: bytes | bytearray, limit: BandwidthLimit) -> None:
        super().__init__(body)
        self._limit = limit

    def read(self, size: int | None = -1) -> bytes:
        block = super().read(size)
        if self._is_sent:
            self._limit.take(len(block))
        return block


class HeldBody(RequestBody):
    """Once it is sent, `before_last_bytes` is called on the way: the store was asked, and has not got what it is to keep."""

    def __init__(self, body: bytes, before_last_bytes: Callable[[], None]) -> None:
        super().__init__(body)
        self._before_last_bytes = before_last_bytes
        self._held_from: int | None = None

    def begin_sending(self) -> None:
        super().begin_sending()
        self._held_from = max(0, len(self._body) - _LAST_BYTES)

    def read(self, size: int | None = -1) -> bytes:
        """A block, which ends where the paused bytes begin."""
        if self._held_from is not None:
            left = self._held_from - self._position
            if left > 0:
                return super().read(left if size is None or size < 0 else min(size, left))
            self._held_from = None
            self._before_last_bytes()
        return super().read(size)


def note_sending(request: Any, **_: Any) -> None:
    """Botocore's event `before-send`: the request is signed, whoever reads its body now puts it on the wire."""
    if isinstance(request.body, RequestBody):
        request.body.begin_sending()
