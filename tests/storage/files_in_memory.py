"""fsspec's memory file system as a store. No archive can be written to one: it is lost when its process ends."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from sidecar.randomness import SystemRandomness
from sidecar.storage.fsspec_store import FsspecStore

_LOCK = threading.Lock()


class FilesInMemory(FsspecStore):
    """A file being written is visible there, so it is put in one piece; and creating tests and sets in two steps."""

    def __init__(self) -> None:
        super().__init__(f"memory://{SystemRandomness().random_bytes(8).hex()}/archive")

    def _write(self, path: str, chunks: Iterable[bytes]) -> None:
        body = b"".join(chunks)
        with _LOCK:
            self._files.pipe_file(path, body, mode="create")
