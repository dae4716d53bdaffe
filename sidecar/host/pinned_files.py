"""Segments are pinned (open descriptors) from their planning on: the bytes outlive the broker's retention. Nothing is
linked or written."""

import resource
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

from sidecar.errors import PartitionError, TooManyOpenFiles
from sidecar.event_log import EVENTS
from sidecar.host.listed_files import BrokerFiles, require_listed
from sidecar.model import FileIdentity
from sidecar.partition.domain_events import Emit, PinReleased
from sidecar.ports import OpenFiles
from sidecar.reporting.log_sink import log_event

Answer = TypeVar("Answer")

HELD_MAX: Final = 4_096
HELD_FEW: Final = 256
"""If fewer can be pinned, `doctor` warns."""
FREE_SHARE_MIN: Final = 0.05
"""Files that the broker has deleted use its disk while they are pinned; below this share of free space they are released."""


def descriptors_to_hold() -> int:
    """A quarter of what this process may open, at most `HELD_MAX`: connections and indexes need some too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return HELD_MAX if soft == resource.RLIM_INFINITY else min(HELD_MAX, soft // 4)


@dataclass(eq=False)
class PinnedFiles:
    """Open descriptors by file. Thread-safe. `limit`: how many at most."""

    limit: int = field(default_factory=descriptors_to_hold)
    emit: Emit = log_event
    files: OpenFiles = field(default_factory=BrokerFiles)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _pinned: dict[FileIdentity, int] = field(default_factory=dict, init=False)

    def keep(self, wanted: Iterable[FileIdentity]) -> tuple[FileIdentity, ...]:
        """Pin these and no others, the most urgent first, as far as there is room on the disks and for descriptors.

        Returns: those for which there are too few descriptors. Any other that cannot be opened is reported when it is read.
        """
        each, short = list(dict.fromkeys(wanted)), list[FileIdentity]()
        with self._lock:
            # Trap: since it was listed, the broker may have deleted a file. Our descriptor is its last then.
            if last := {file for file in each[self.limit :] if self._is_last(file)}:
                each.sort(key=lambda file: file not in last)
            files = each[: self.limit]
            self._close(self._pinned.keys() - set(files))
            self._pinned = {file: self._pinned[file] for file in files if file in self._pinned}
            self._spare_disks()
            for file in files:
                if file not in self._pinned:
                    try:
                        self._pinned[file] = self.files.open(file)
                    except TooManyOpenFiles:
                        short.append(file)
                    except PartitionError:
                        continue
        return (*short, *each[self.limit :])

    def _is_last(self, file: FileIdentity) -> bool:
        return bool(self._asked(self.files.is_unlinked, file))

    def _asked(self, ask: Callable[[FileIdentity, int], Answer], file: FileIdentity) -> Answer | None:
        """What a pinned file answers. None if it is not pinned, or no longer: its disk fails, so it cannot be archived."""
        descriptor = self._pinned.get(file)
        try:
            return None if descriptor is None else ask(file, descriptor)
        except PartitionError as error:
            self._close([file], str(error))
            return None

    def _spare_disks(self) -> None:
        """Release files that the broker has deleted, the least urgent first, if its disk is nearly full.

        XFS and btrfs free the blocks of a closed file later. So its bytes count at once; where they count twice, the next time
        releases what is still missing.
        """
        freed_bytes = Counter[Path]()
        for file in [file for file in reversed(list(self._pinned)) if self._is_last(file)]:
            log_dir = file.directory.parent
            free_share = self._asked(partial(self.files.free_share, freed_bytes[log_dir]), file)
            if free_share is not None and free_share < FREE_SHARE_MIN:
                freed_bytes[log_dir] += file.size_bytes
                self._close([file], "the broker deleted it before it was archived, and the disk is nearly full")

    def take(self, file: FileIdentity) -> int:
        """A descriptor of the file, which the caller closes; the pin stays. Raises the errors of `open_listed`."""
        with self._lock:
            pinned = self._pinned.get(file)
            descriptor = None if pinned is None else self.files.duplicate(file, pinned)
        if descriptor is None:
            return self.files.open(file)
        return require_listed(self.files, file, descriptor)

    def has(self, file: FileIdentity) -> bool:
        """Whether the file is pinned, and is still the listed one."""
        with self._lock:
            return self._asked(self.files.identity, file) == file

    def unlinked_bytes(self) -> int:
        """Bytes that the broker has deleted and that use its disk because they are pinned."""
        return sum(file.size_bytes for file in self._deleted())

    def _deleted(self) -> list[FileIdentity]:
        """Files that have no name any more, or another one as a broker gives it some time before."""
        with self._lock:
            pinned = [(file, self._is_last(file)) for file in list(self._pinned)]
        # Not under the lock: a slow disk must not block access to pinned files.
        return [file for file, is_last in pinned if is_last or not self.files.has_its_name(file)]

    def let_go(self, files: Iterable[FileIdentity], why: str = "") -> None:
        """`why`: of the event for each of these that is pinned, "" where nothing is lost with it."""
        with self._lock:
            self._close(files, why)

    def release(self) -> None:
        """Close all: the process ends. Segments that only it still had are reported; they cannot be archived after this."""
        deleted = self._deleted()
        with self._lock:
            self._close(list(self._pinned))
        if deleted:
            EVENTS.warning(
                "pinned_segments_released",
                segments=len(deleted),
                size_bytes=sum(file.size_bytes for file in deleted),
                partitions=sorted({file.path.parent.name for file in deleted}),
                reason="the process ends; the broker deleted them before they were archived",
                effect="unless another replica has them, their records are lost; the next start with the same "
                "run.state_dir reports the offsets as offsets_lost. Without a connection to the broker, a partition that "
                "has an archive stops at the gap instead",
            )

    def _close(self, files: Iterable[FileIdentity], why: str = "") -> None:
        """The only place where pins go; see `let_go`."""
        for file in files:
            descriptor = self._pinned.pop(file, None)
            if descriptor is not None:
                self.files.close(descriptor)
                if why:
                    self.emit(PinReleased(str(file.path), file.size_bytes, why))


class HasPins(Protocol):
    @property
    def pinned(self) -> PinnedFiles: ...
