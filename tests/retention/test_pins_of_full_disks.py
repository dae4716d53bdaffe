"""What is given up for a disk that is nearly full, where the file system frees blocks later."""

from __future__ import annotations

from pathlib import Path

from sidecar.host.listed_files import identity_of
from sidecar.host.pinned_files import PinnedFiles
from tests.fakes.disk_with_room import DiskWithRoom


def test_no_more_is_given_up_than_needed_where_blocks_become_free_later(tmp_path: Path) -> None:
    """XFS and btrfs free the blocks of an unlinked file in the background, after its last close."""
    paths = [tmp_path / f"{number}.log" for number in range(4)]
    for path in paths:
        path.write_bytes(b"0123456789")
    files = [identity_of(path, path.stat()) for path in paths]
    held = PinnedFiles(limit=4, files=DiskWithRoom(lambda freed_bytes: (49 + freed_bytes) / 1000))
    held.keep(files)
    for path in paths:
        path.unlink()
    held.keep(files)
    assert [held.has(file) for file in files] == [True, True, True, False]
    held.release()
