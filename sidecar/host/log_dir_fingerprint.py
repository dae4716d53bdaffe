"""Is this the very directory that a lineage was archived from? Asked where no topic id and no batch can tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sidecar.discovery.birth_time import birth_ns
from sidecar.model import PartitionFiles


@dataclass(frozen=True, slots=True)
class SourceMark:
    """What a partition directory is known by later. Devices are not: a restart may number them anew.

    `birth_ns`: when it was made, None where the file system does not tell. `active_name`, `active_inode`: its active `.log`,
    "" and 0 where there was none.
    """

    directory: Path
    inode: int
    birth_ns: int | None
    active_name: str
    active_inode: int


def mark_of(files: PartitionFiles) -> SourceMark:
    """The mark of a directory as it was listed."""
    inode, active = files.directory_id[1], files.active_log
    return SourceMark(
        files.directory,
        inode,
        birth_ns(files.directory, inode),
        "" if active is None else active.name,
        0 if active is None else active.inode,
    )


def bears(files: PartitionFiles, now: SourceMark, mark: SourceMark) -> bool:
    """Whether a directory is the marked one. `now`: its mark as it was just listed.

    A topic that is made anew often gets the inode number of the deleted one's directory, but another birth. Where that is not
    told, the segment that was active then must still be there.
    """
    if (now.directory, now.inode) != (mark.directory, mark.inode):
        return False
    if now.birth_ns is not None and mark.birth_ns is not None:
        return now.birth_ns == mark.birth_ns
    logs = [segment.log for segment in files.segments] + ([] if files.active_log is None else [files.active_log])
    return any((log.name, log.inode) == (mark.active_name, mark.active_inode) for log in logs)
