"""A request body whose end is sent later: the store has been asked, and has not yet got what it was asked to keep."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

_LAST_BYTES = 1024
"""Held back. What goes before fills the buffers with which a server may begin before it looks at its objects."""


class HeldBody:
    """Read by botocore: as it is while the request is signed; once it is sent, `before_last_bytes` is called on the way."""

    def __init__(self, body: bytes, before_last_bytes: Callable[[], None]) -> None:
        self._body = body
        self._position = 0
        self._before_last_bytes = before_last_bytes
        self._held_from: int | None = None

    def __len__(self) -> int:
        return len(self._body)

    def hold(self) -> None:
        """From now on the reader is the connection."""
        self._held_from = max(0, len(self._body) - _LAST_BYTES)

    def read(self, size: int | None = -1) -> bytes:
        """A block, which ends where the held bytes begin."""
        end = len(self._body) if size is None or size < 0 else self._position + size
        if self._held_from is not None:
            if self._position < self._held_from:
                end = min(end, self._held_from)
            else:
                self._held_from = None
                self._before_last_bytes()
        block = self._body[self._position : end]
        self._position += len(block)
        return block

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Botocore and urllib3 rewind with it and look for the length."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: len(self._body)}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Bytes read so far."""
        return self._position


def hold_when_sent(request: Any, **_: Any) -> None:
    """Botocore's event `before-send`: the request is signed, whoever reads its body now puts it on the wire."""
    if isinstance(request.body, HeldBody):
        request.body.hold()
