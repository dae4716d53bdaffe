"""Files of the broker on a disk that has as much room as a test says."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.host.listed_files import BrokerFiles
from sidecar.model import FileIdentity


class DiskWithRoom(BrokerFiles):
    def __init__(self, free_share: Callable[[int], float] = lambda _freed_bytes: 1.0) -> None:
        """Args: free_share: of the disk, once so many bytes are freed. Default: all of it is free."""
        self._free_share = free_share

    def free_share(self, freed_bytes: int, file: FileIdentity, descriptor: int) -> float:
        return self._free_share(freed_bytes)
