"""Open files of the broker, as its file system has them."""

from __future__ import annotations

import os
from contextlib import suppress

from sidecar.host.listed_files import identity_of, open_listed
from sidecar.model import FileIdentity
from sidecar.storage import FileSource


class BrokerFiles:
    """Implements `sidecar.ports.OpenFiles`."""

    def open(self, file: FileIdentity) -> int:
        """See `OpenFiles`."""
        return open_listed(file)

    def identity(self, file: FileIdentity, descriptor: int) -> FileIdentity:
        """See `OpenFiles`."""
        return identity_of(file.path, os.fstat(descriptor))

    def duplicate(self, descriptor: int) -> int:
        """See `OpenFiles`."""
        return os.dup(descriptor)

    def close(self, descriptor: int) -> None:
        """See `OpenFiles`."""
        os.close(descriptor)

    def is_unlinked(self, descriptor: int) -> bool:
        """See `OpenFiles`."""
        return os.fstat(descriptor).st_nlink == 0

    def has_its_name(self, file: FileIdentity) -> bool:
        """See `OpenFiles`."""
        try:
            return file.path.stat().st_ino == file.inode
        except FileNotFoundError:
            with suppress(OSError):
                return not file.directory.is_dir()
        except OSError:
            return True
        return True

    def free_share(self, descriptor: int) -> float:
        """See `OpenFiles`."""
        found = os.fstatvfs(descriptor)
        return found.f_bavail / max(1, found.f_blocks)

    def source(self, descriptor: int, size_bytes: int, name: str, start_position: int = 0) -> FileSource:
        """See `OpenFiles`."""
        return FileSource(descriptor, size_bytes, name, start_position)
