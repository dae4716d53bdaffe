"""A request body whose end is sent later: the store has been asked, and has not yet got what it was asked to keep."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.storage.request_body import RewindableBody

_LAST_BYTES = 1024
"""Held back. What goes before fills the buffers with which a server may begin before it looks at its objects."""


class HeldBody(RewindableBody):
    """Read by botocore: as it is while the request is signed; once it is sent, `before_last_bytes` is called on the way."""

    def __init__(self, body: bytes, before_last_bytes: Callable[[], None]) -> None:
        super().__init__(body)
        self._before_last_bytes = before_last_bytes
        self._held_from: int | None = None

    def begin_sending(self) -> None:
        """Stop before the last bytes from now on."""
        super().begin_sending()
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
        block = bytes(self._body[self._position : end])
        self._position += len(block)
        return block
