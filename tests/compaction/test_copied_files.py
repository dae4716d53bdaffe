"""Segments that stay as they are: copied by the kernel, or where it refuses by this process."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sidecar.errors import SegmentChanged
from sidecar.rewriting.work_files import copy_file

DATA = bytes(range(251)) * 1200


def refusing(after_bytes: int, number: int) -> object:
    """A kernel that copies so many bytes at most, and then refuses."""
    whole, copied = os.copy_file_range, [0]

    def copy_file_range(source: int, target: int, count: int) -> int:
        if copied[0] == after_bytes:
            if number:
                raise OSError(number, os.strerror(number))
            return 0
        copied[0] += (done := whole(source, target, min(count, after_bytes - copied[0])))
        return done

    return copy_file_range


@pytest.mark.parametrize("after_bytes", [0, 100_000])
@pytest.mark.parametrize("number", [0, errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EIO])
def test_what_the_kernel_leaves_is_copied_all_the_same(
    after_bytes: int, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source").write_bytes(DATA)
    os.utime(tmp_path / "source", ns=(1, 1_700_000_000_123_456_789))
    monkeypatch.setattr(os, "copy_file_range", refusing(after_bytes, number))
    copy_file(tmp_path / "source", tmp_path / "target", 200_000)
    assert (tmp_path / "target").read_bytes() == DATA[:200_000]
    assert (tmp_path / "target").stat().st_mtime_ns == 1_700_000_000_123_456_789


def test_a_file_that_became_shorter_is_a_changed_segment(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(DATA)
    with pytest.raises(SegmentChanged, match="became shorter"):
        copy_file(tmp_path / "source", tmp_path / "target", len(DATA) + 1)
    with pytest.raises(SegmentChanged, match="vanished"):
        copy_file(tmp_path / "nothing", tmp_path / "target", 1)


def test_a_file_that_vanishes_while_its_copy_is_synced_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker deletes the segment then. The copy is whole, and the disk that it lies on has no fault."""
    (tmp_path / "source").write_bytes(DATA)
    os.utime(tmp_path / "source", ns=(1, 1_700_000_000_123_456_789))
    monkeypatch.setattr(os, "fsync", lambda _descriptor: (tmp_path / "source").unlink())
    copy_file(tmp_path / "source", tmp_path / "target", len(DATA))
    assert (tmp_path / "target").read_bytes() == DATA
    assert (tmp_path / "target").stat().st_mtime_ns == 1_700_000_000_123_456_789
