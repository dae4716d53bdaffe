"""The rows of LogCleanerTest that are about files (design §9.1, §9.2), on directories.

Without counterpart: testDoneCleaning and testMaybeTruncateCheckpointShouldTruncateData (§9.4, rows 55 and 56), which are about
a list of partitions in progress and a checkpoint that outlives them: here a compaction is there as a whole or not at all.
testGrabFilthiest (row 45) is the policy's: tests/compactor/test_compaction_policy.py.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sidecar.compaction.rules import CompactionRules
from sidecar.errors import SegmentChanged
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.rewriting import run
from tests.compaction.directories import compacted, tree

RULES = CompactionRules(0)


def partition(root: Path) -> Path:
    """Three keys, each in each of three rolled segments, and an active one."""
    path = root / "logs" / "t-0"
    path.mkdir(parents=True)
    for base in range(0, 9, 3):
        records = [Record(base + key, 0, b"k%d" % key, b"%d" % base) for key in range(3)]
        (path / f"{base:020d}.log").write_bytes(build_batch(records))
    (path / f"{9:020d}.log").write_bytes(build_batch([Record(9, 0, b"k0", b"active")]))
    (path / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return path


def test_size_trimmed_for_preallocated_and_compacted_topic(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "t-0"
    path.mkdir(parents=True)
    records = [Record(offset, 0, b"k%d" % (offset % 2), b"v") for offset in range(5)]
    log = build_batch(records)
    (path / f"{0:020d}.log").write_bytes(log + bytes(1024 - len(log)))
    found = compacted(path, tmp_path / "t-0", RULES, include_active=True)
    assert (tmp_path / "t-0" / f"{0:020d}.log").stat().st_size == found.bytes_after < len(log)
    assert found.records_after == 2


def test_clean_segments_with_abort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop while the third stage writes."""
    path = partition(tmp_path)
    before = tree(path)

    def interrupted(rewrite: Any, *arguments: Any) -> Iterator[Any]:
        yield next(rewrite(*arguments))
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "rewrite", partial(interrupted, run.rewrite))
    with pytest.raises(KeyboardInterrupt):
        compacted(path, tmp_path / "out" / "t-0", RULES)
    assert tree(path) == before
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("gone", [0, 3, 6])
def test_clean_segments_with_concurrent_segment_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: int
) -> None:
    """Retention deletes a source while it is compacted: found out, and nothing is left; the next run does without it."""
    path = partition(tmp_path)
    rewrite = run.rewrite

    def after_deletion(*arguments: Any) -> Iterator[Any]:
        (path / f"{gone:020d}.log").unlink(missing_ok=True)
        return rewrite(*arguments)

    monkeypatch.setattr(run, "rewrite", after_deletion)
    with pytest.raises(SegmentChanged, match=rf"{gone:020d}\.log: vanished"):
        compacted(path, tmp_path / "out" / "t-0", RULES)
    assert list((tmp_path / "out").iterdir()) == []
    monkeypatch.setattr(run, "rewrite", rewrite)
    assert compacted(path, tmp_path / "again" / "t-0", RULES).records_after in (0, 3)


def test_recovery_after_crash(tmp_path: Path) -> None:
    """Killed before every flush and every renaming in turn: no result, or a whole one; and the next run finds its way."""
    path = partition(tmp_path)
    expected = tree(compacted(path, tmp_path / "whole" / "t-0", RULES).out or path)
    before = tree(path)
    for point in range(1, 60):
        out = tmp_path / f"{point}" / "t-0"
        if not _killed_at(point, path, out):
            assert point > 8
            break
        assert not out.exists() or tree(out) == expected
        assert tree(path) == before
        if not out.exists():
            compacted(path, out, RULES)
        assert tree(out) == expected
    else:
        raise AssertionError("never ends by itself")


def _killed_at(point: int, path: Path, out: Path) -> bool:
    """Compact in a child that kills itself before its so many-th fsync or rename; whether it came to that."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    calls = 0

    def counted(original: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments, **options)

        return call

    try:
        os.fsync, os.replace = counted(os.fsync), counted(os.replace)
        compacted(path, out, RULES)
    finally:
        os._exit(0)
