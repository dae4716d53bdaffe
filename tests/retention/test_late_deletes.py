"""A DELETE without an answer takes hold late. Nothing that it may remove is committed meanwhile."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from sidecar.archive.keys import below
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import StoreUnavailable
from sidecar.model import ObjectKey
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.runner.context import RunContext
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import archived_states, copy_partitions, ranges, rolled_ranges, tools_for

ALL = TopicFilter((".*",))


class LateStore(MemoryStore):
    """From the first `silent_from` of an `.indexes` on, no request gets an answer. `land`: DELETEs that got none take hold."""

    def __init__(self) -> None:
        super().__init__(before=self._unless_away)
        self.silent_from = ""
        self._is_away = False
        self._on_its_way: list[ObjectKey] = []
        self.asked_to_delete: set[ObjectKey] = set()

    def come_back(self) -> None:
        self._is_away, self.silent_from = False, ""

    def _unless_away(self, operation: str, key: str) -> None:
        self._is_away |= operation == self.silent_from and key.endswith(".indexes")
        if self._is_away:
            raise StoreUnavailable("no answer")

    def delete(self, keys: Iterable[ObjectKey]) -> None:
        found = list(keys)
        self.asked_to_delete.update(found)
        if self._is_away:
            self._on_its_way += found
        super().delete(found)

    def land(self) -> None:
        for key in self._on_its_way:
            self.objects.pop(key, None)

    def named(self) -> set[ObjectKey]:
        """Of live segments."""
        states = archived_states(self).values()
        return {
            below(s.lineage.root, key)
            for s in states
            for found in s.segments
            for key in (found.log_key, found.indexes_key)
        }


def loop_over(context: RunContext, log_dir: Path) -> ArchiveLoop:
    return ArchiveLoop(context, partial(scan_log_dirs, [log_dir], ALL))


def require_whole(store: LateStore, log_dir: Path) -> None:
    assert ranges(archived_states(store)["orders-0"]) == rolled_ranges(log_dir, "orders-0")
    assert not store.named() & store.asked_to_delete
    store.land()
    assert store.named() <= set(store.objects)


@pytest.mark.parametrize("restarts", [False, True])
def test_what_was_to_be_discarded_in_an_outage_is_not_committed_afterwards(restarts: bool, tmp_path: Path) -> None:
    """`.log` is sent. The store falls silent: `.indexes` fails, the task discards, its DELETE gets no answer."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), LateStore()
    with tools_for(log_dir, store, tmp_path / "state", uploads_ahead=1) as context:
        loop = loop_over(context, log_dir)
        store.silent_from = "upload"
        (failed,) = loop.run_once().outcomes
        assert isinstance(failed.error, StoreUnavailable)
        assert len(store.asked_to_delete) == 2
        store.come_back()
        if not restarts:
            assert loop.run_once().errors == []
    if restarts:
        with tools_for(log_dir, store, tmp_path / "state", uploads_ahead=1) as context:
            assert loop_over(context, log_dir).run_once().errors == []
    require_whole(store, log_dir)


def _killed(store: LateStore, log_dir: Path, state_dir: Path, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that sends no DELETE: it ends where it uploads or reads back the `.indexes` of its first segment."""
    with monkeypatch.context() as patch, tools_for(log_dir, store, state_dir, uploads_ahead=1) as context:
        patch.setattr("sidecar.runner.copy_executor.discard_quietly", lambda _context, _attempt: None)
        store.silent_from = at
        assert loop_over(context, log_dir).run_once().errors
    store.come_back()


@pytest.mark.parametrize(("at", "objects"), [("upload", 1), ("read", 2)])
def test_an_interrupted_upload_is_resumed_and_none_of_its_objects_is_deleted(
    at: str, objects: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), LateStore()
    _killed(store, log_dir, tmp_path / "state", at, monkeypatch)
    left = {ObjectKey(key) for key in store.objects if "/segments/" in key}
    assert len(left) == objects
    with tools_for(log_dir, store, tmp_path / "state", uploads_ahead=1) as context:
        assert loop_over(context, log_dir).run_once().errors == []
    assert left <= store.named()
    require_whole(store, log_dir)


def test_other_indexes_than_the_interrupted_upload_sent_are_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another release may make them: the task sends the segment again, under another key."""
    log_dir, store = copy_partitions(tmp_path, "orders-0"), LateStore()
    _killed(store, log_dir, tmp_path / "state", "read", monkeypatch)
    (key,) = (ObjectKey(key) for key in store.objects if key.endswith(".indexes"))
    store.objects[key] = store.objects[key][:-1] + b"?"
    with tools_for(log_dir, store, tmp_path / "state", uploads_ahead=1) as context:
        assert loop_over(context, log_dir).run_once().errors == []
    assert key not in store.objects
    require_whole(store, log_dir)
