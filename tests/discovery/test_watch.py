from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import watchfiles

from sidecar.discovery import watch
from sidecar.discovery.watch import Hint, is_worth_a_scan

PATIENCE_S = 20.0


@pytest.mark.parametrize(
    ("change", "name", "expected"),
    [
        (watchfiles.Change.added, "00000000000000000007.log", True),
        (watchfiles.Change.added, "00000000000000000007.snapshot", True),
        (watchfiles.Change.modified, "00000000000000000007.log", False),
        (watchfiles.Change.deleted, "00000000000000000007.log", False),
        (watchfiles.Change.added, "00000000000000000007.log.swap", False),
        (watchfiles.Change.added, "00000000000000000007.index", False),
        (watchfiles.Change.added, "replication-offset-checkpoint.tmp", False),
    ],
)
def test_only_new_segments_are_worth_a_scan(change: watchfiles.Change, name: str, expected: bool) -> None:
    assert is_worth_a_scan(change, f"/logs/orders-0/{name}") is expected


def test_a_new_segment_wakes_also_in_a_partition_that_came_later(tmp_path: Path) -> None:
    (tmp_path / "old-0").mkdir()
    wake = threading.Event()
    with Hint([tmp_path], wake) as hint:
        _roll_until_awake(tmp_path / "old-0", wake)
        (tmp_path / "new-0").mkdir()
        _roll_until_awake(tmp_path / "new-0", wake)
        assert hint.watching
    assert not hint._thread.is_alive()


def _roll_until_awake(directory: Path, wake: threading.Event) -> None:
    # The thread may not watch yet when the first file comes, so files come until one is seen.
    deadline = time.monotonic() + PATIENCE_S  # noqa: TID251 - a real file system has no other clock
    base_offset = 0
    while not wake.wait(0.2):
        assert time.monotonic() < deadline, f"no event for {directory}"  # noqa: TID251
        (directory / f"{base_offset:020d}.log").write_bytes(b"")
        base_offset += 1
    wake.clear()


def test_where_watching_is_impossible_the_hint_gives_up(tmp_path: Path) -> None:
    with Hint([tmp_path / "absent"], threading.Event()) as hint:
        hint._thread.join(PATIENCE_S)
        assert not hint._thread.is_alive()
    assert not hint.watching


@pytest.mark.parametrize("error", [OSError(28, "OS file watch limit reached"), RuntimeError("inotify is gone")])
def test_an_error_of_the_watch_is_logged_and_ends_it(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_watch(*_paths: Path, **_options: object) -> None:
        raise error

    warnings: list[dict[str, str]] = []
    monkeypatch.setattr(watchfiles, "watch", no_watch)
    monkeypatch.setattr(watch, "_log", _Recorder(warnings))
    with Hint([tmp_path], threading.Event()) as hint:
        hint._thread.join(PATIENCE_S)
    assert not hint.watching
    assert [(entry["event"], entry["reason"]) for entry in warnings] == [("log_dirs_not_watched", str(error))]


class _Recorder:
    def __init__(self, entries: list[dict[str, str]]) -> None:
        self._entries = entries

    def warning(self, event: str, **fields: str) -> None:
        self._entries.append({"event": event, **fields})


def test_what_may_not_be_read_does_not_keep_the_rest_from_being_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wake = threading.Event()

    def refusing(*_paths: Path, ignore_permission_denied: bool, **_options: object) -> Iterator[set[object]]:
        if not ignore_permission_denied:
            raise PermissionError(13, "lost+found")
        return iter([set()])

    monkeypatch.setattr(watchfiles, "watch", refusing)
    with Hint([tmp_path], wake) as hint:
        assert wake.wait(PATIENCE_S)
    assert hint.watching


def test_stop_without_start_returns(tmp_path: Path) -> None:
    Hint([tmp_path], threading.Event()).stop()
