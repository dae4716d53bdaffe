"""What botocore and urllib3 ask of a request's body besides its blocks: its length, and to begin anew."""

from __future__ import annotations

import os
from typing import Any


class RewindableBody:
    """Bytes in memory with a place to read on from; how they are read is for subclasses."""

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
        """Botocore and urllib3 rewind with it and look for the length."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: len(self._body)}[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Bytes read so far."""
        return self._position


def note_sending(request: Any, **_: Any) -> None:
    """Botocore's event `before-send`: the request is signed, whoever reads its body now puts it on the wire."""
    if isinstance(request.body, RewindableBody):
        request.body.begin_sending()
