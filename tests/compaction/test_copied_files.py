"""Copies of segments that stay as they are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sidecar.errors import SegmentChanged
from sidecar.rewriting.work_files import copy_file

DATA = bytes(range(251)) * 1200


def test_a_copy_has_the_first_bytes_and_the_time(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(DATA)
    os.utime(tmp_path / "source", ns=(1, 1_700_000_000_123_456_789))
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
