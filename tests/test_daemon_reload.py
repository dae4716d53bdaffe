"""The loop in this process takes changed settings over: between rounds, in place, and without forgetting what it knows."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sidecar.config import Settings
from sidecar.http.status_json import board_json
from sidecar.pipeline import assembly
from tests.fakes.memory_store import MemoryStore
from tests.test_daemon import WAIT_S, Loop, eventually, looping, settings_for


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """What every settings' URL leads to."""
    found = MemoryStore()
    monkeypatch.setattr(assembly, "open_store", lambda *_arguments: found)
    return found


def changed(settings: Settings, **sections: dict[str, Any]) -> Settings:
    tree = settings.model_dump()
    return Settings.model_validate({**tree, **{name: {**tree[name], **new} for name, new in sections.items()}})


def committed(store: MemoryStore, topic: str) -> int:
    return sum(f"/{topic}/" in key and "/commits/" in key for key in list(store.objects))


def topics_shown(loop: Loop) -> set[str]:
    return {row["topic"] for row in board_json(loop.board)["partitions"]}


def test_changed_settings_hold_from_the_next_round_on_and_no_upload_is_disturbed(
    tmp_path: Path, store: MemoryStore
) -> None:
    uploading, released = threading.Event(), threading.Event()

    def hang(operation: str, key: str) -> None:
        if operation == "upload" and "_probe" not in key and not released.is_set():
            uploading.set()
            released.wait(WAIT_S)

    store.before = hang
    settings = settings_for(tmp_path, scan_interval_s=3000.0)
    with looping(settings) as loop:
        assert uploading.wait(WAIT_S)
        loop.loop.adopt(changed(settings, topics={"include": ["orders"]}, run={"scan_interval_s": 0.05}))
        time.sleep(0.2)  # noqa: TID251
        assert committed(store, "orders") == 0
        released.set()
        eventually(lambda: committed(store, "orders") > 0)
        # What had begun was finished by the old settings, and is left alone by the new ones.
        assert committed(store, "append-time") == 2
        eventually(lambda: topics_shown(loop) == {"orders"})


def test_compaction_begins_and_ends_with_settings_that_name_topics(tmp_path: Path, store: MemoryStore) -> None:
    settings = settings_for(tmp_path)
    with looping(settings) as loop:
        eventually(lambda: not loop.health.not_ready() and loop.row()["segments_waiting"] == 0)
        assert not loop.health.status().get("compaction", {}).get("partitions")
        on = changed(settings, compaction={"topics": ["append-time"], "check_interval_s": 0.05})
        loop.loop.adopt(on)
        eventually(lambda: bool(loop.health.status()["compaction"]["partitions"]))
        assert "compaction" in {thread.name for thread in threading.enumerate()}
        loop.loop.adopt(changed(on, compaction={"enabled": False}, gc={"enabled": False}))
        eventually(lambda: "compaction" not in {thread.name for thread in threading.enumerate()})
        # Nobody is left to tell of them.
        eventually(lambda: loop.health.status()["compaction"]["partitions"] == [])


def test_bandwidth_and_policies_change_in_place(tmp_path: Path, store: MemoryStore) -> None:
    settings = settings_for(tmp_path)
    with looping(settings) as loop:
        eventually(lambda: not loop.health.not_ready())
        changing = loop.loop._changing
        assert not changing.bandwidth.is_limited
        entry = {"pattern": ".*", "retention_ms": 3_600_000}
        faster = {"bandwidth_bytes_per_s": 1 << 20}
        loop.loop.adopt(changed(settings, store=faster, topics={"policies": [entry]}, run={"workers": 7}))
        eventually(lambda: changing.bandwidth.is_limited)
        assert [found.retention_ms for found in changing.policies] == [3_600_000]
        loop.loop.adopt(settings)
        eventually(lambda: not changing.bandwidth.is_limited and changing.policies == [])


def test_the_last_of_several_changes_counts(tmp_path: Path, store: MemoryStore) -> None:
    settings = settings_for(tmp_path)
    with looping(settings) as loop:
        for topic in ("orders", "compacted", "empty"):
            loop.loop.adopt(changed(settings, topics={"include": [topic]}))
        eventually(lambda: topics_shown(loop) == {"empty"})
