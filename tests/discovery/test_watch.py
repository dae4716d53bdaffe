"""New names below the log dirs wake, appends do not, and where nothing can be watched the periodic scan remains."""

from __future__ import annotations

import errno
import threading
import time
from pathlib import Path

import pytest

from sidecar.discovery import watch
from sidecar.discovery.watch import THREAD, NewNames, is_worth_a_scan, waking_on_new_files
from sidecar.errors import PartitionError

PATIENCE_S = 20.0
LONG_ENOUGH_S = 0.4


def is_watched() -> bool:
    return any(thread.name == THREAD for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000007.log", True),
        ("00000000000000000007.snapshot", True),
        ("00000000000000000007.log.swap", False),
        ("00000000000000000007.index", False),
        ("replication-offset-checkpoint.tmp", False),
    ],
)
def test_only_new_segments_are_worth_a_scan(name: str, expected: bool) -> None:
    assert is_worth_a_scan(name) is expected


def test_a_new_segment_wakes_also_in_a_partition_that_came_later(tmp_path: Path) -> None:
    (tmp_path / "old-0").mkdir()
    wake = threading.Event()
    with waking_on_new_files([tmp_path], wake):
        _touch(tmp_path / "old-0", 7)
        assert wake.wait(PATIENCE_S)
        wake.clear()
        (tmp_path / "new-0").mkdir()
        assert wake.wait(PATIENCE_S)
        wake.clear()
        _touch(tmp_path / "new-0", 7)
        assert wake.wait(PATIENCE_S)
        assert is_watched()
    assert not is_watched()


def test_a_roll_wakes_within_a_tenth_of_a_second_or_so(tmp_path: Path) -> None:
    (tmp_path / "old-0").mkdir()
    wake, took_s = threading.Event(), []
    with waking_on_new_files([tmp_path], wake):
        for base_offset in range(10):
            began_s = time.monotonic()  # noqa: TID251 - a real file system has no other clock
            _touch(tmp_path / "old-0", base_offset)
            assert wake.wait(PATIENCE_S)
            took_s.append(time.monotonic() - began_s)  # noqa: TID251
            wake.clear()
    assert min(took_s) < watch.GATHER_S + 0.5


def test_appends_and_other_files_do_not_wake(tmp_path: Path) -> None:
    directory = tmp_path / "old-0"
    directory.mkdir()
    _touch(directory, 0)
    wake = threading.Event()
    with waking_on_new_files([tmp_path], wake):
        (directory / f"{0:020d}.log").write_bytes(b"appended")
        (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
        (tmp_path / "some-directory").mkdir()
        assert not wake.wait(LONG_ENOUGH_S)


def test_where_watching_is_impossible_the_hint_gives_up(tmp_path: Path) -> None:
    with waking_on_new_files([tmp_path / "absent"], threading.Event()):
        assert not is_watched()


def test_too_few_watches_are_logged_and_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(_names: NewNames, directory: Path) -> None:
        raise PartitionError(f"{directory} cannot be watched: {errno.errorcode[errno.ENOSPC]}")

    (tmp_path / "old-0").mkdir()
    warnings: list[dict[str, str]] = []
    monkeypatch.setattr(NewNames, "add", none_left)
    monkeypatch.setattr(watch, "EVENTS", _Recorder(warnings))
    with waking_on_new_files([tmp_path], threading.Event()):
        assert not is_watched()
    assert [(entry["event"], entry["reason"]) for entry in warnings] == [
        ("log_dirs_not_watched", f"{tmp_path} cannot be watched: ENOSPC")
    ]


class _Recorder:
    def __init__(self, entries: list[dict[str, str]]) -> None:
        self._entries = entries

    def warning(self, event: str, **fields: str) -> None:
        self._entries.append({"event": event, **fields})


def test_a_partition_that_vanishes_while_it_is_added_does_not_keep_the_rest_from_being_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, wake = NewNames.add, threading.Event()

    def vanishing(names: NewNames, directory: Path) -> None:
        if directory.name == "gone-0":
            directory.rmdir()
        add(names, directory)

    for name in ("gone-0", "old-0"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(NewNames, "add", vanishing)
    with waking_on_new_files([tmp_path], wake):
        assert is_watched()
        _touch(tmp_path / "old-0", 7)
        assert wake.wait(PATIENCE_S)


def test_events_that_the_kernel_lost_wake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, wake = watch.NewNames.wait, threading.Event()
    lost = [[(None, "")]]
    monkeypatch.setattr(NewNames, "wait", lambda names: lost.pop() if lost else read(names))
    with waking_on_new_files([tmp_path], wake):
        assert wake.wait(PATIENCE_S)


def test_all_partitions_that_come_at_once_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait, wake, both = watch.NewNames.wait, threading.Event(), ("new-0", "new-1")
    come = [[(tmp_path, name) for name in both]]
    monkeypatch.setattr(NewNames, "wait", lambda names: come.pop() if come else wait(names))
    for name in both:
        (tmp_path / name).mkdir()
    monkeypatch.setattr(watch, "_present", lambda _log_dirs: [])
    with waking_on_new_files([tmp_path], wake):
        assert wake.wait(PATIENCE_S)
        wake.clear()
        _touch(tmp_path / "new-1", 7)
        assert wake.wait(PATIENCE_S)


def _touch(directory: Path, base_offset: int) -> None:
    (directory / f"{base_offset:020d}.log").touch()
