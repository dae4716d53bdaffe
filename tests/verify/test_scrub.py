"""Deep checks as tasks: the same findings as in threads, packed by bytes, and a store that is gone is reported once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sidecar.archive.keys import below
from sidecar.clock import SystemClock
from sidecar.errors import StoreUnavailable
from sidecar.ports import ObjectStore
from sidecar.storage.opening import open_store
from sidecar.store_settings import StoreSettings
from sidecar.verify import segments, verify
from sidecar.verify.segments import Check, scrub, scrub_on_engine
from sidecar.verify.verify import verify_archive
from tests.archive.example import FIRST, LINEAGE, many_partitions
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore


class Recording:
    """A `TaskEngine` that works here and remembers what it was given."""

    def __init__(self) -> None:
        self.tasks: list[Sequence[Check]] = []

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        self.tasks += tasks
        for task in tasks:
            yield function(task)


def in_memory(monkeypatch: pytest.MonkeyPatch, store: ObjectStore) -> StoreSettings:
    """Tasks find this store under these settings."""
    monkeypatch.setattr(segments, "store_of", lambda _settings: store)
    return StoreSettings(url="memory://here")


@pytest.mark.leaves_damage("missing_object")
def test_the_same_findings_as_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    store = many_partitions(20)
    broken = replace(LINEAGE, topic_partition=replace(LINEAGE.topic_partition, partition=15))
    store.delete([below(broken.root, FIRST.segment.log_key)])
    engine = Recording()
    checks = partial(scrub_on_engine, in_memory(monkeypatch, store), engine)
    assert list(verify_archive(store, store.clock, deep=True, checks=checks)) == list(
        verify_archive(store, store.clock, deep=True)
    )
    assert [len(task) for task in engine.tasks] == [22]


@pytest.mark.parametrize("at_once", [1, 7, 10_000])
def test_memory_is_bounded_by_planning_some_segments_at_a_time(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    store = many_partitions(40)
    monkeypatch.setattr(verify, "_SEGMENTS_AT_ONCE", at_once)
    engine = Recording()
    found = list(
        verify_archive(store, store.clock, checks=partial(scrub_on_engine, in_memory(monkeypatch, store), engine))
    )
    assert [one.row.partition for one in found] == [3, *range(10, 50)]
    assert all(one.is_sound for one in found)
    assert len(engine.tasks) == (1 if at_once == 10_000 else 3)


def test_large_segments_are_tasks_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_TASK_BYTES", 1)
    store = many_partitions(2)
    engine = Recording()
    list(verify_archive(store, store.clock, checks=partial(scrub_on_engine, in_memory(monkeypatch, store), engine)))
    assert [len(task) for task in engine.tasks] == [1] * 4


def test_one_partition_that_cannot_be_read_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    store = many_partitions(3)
    monkeypatch.setattr(segments, "_TASK_SEGMENTS", 2)
    settings = in_memory(monkeypatch, store)
    seen = 0

    def run(function: Callable[[Any], bytes], tasks: Sequence[Any]) -> Iterator[bytes]:
        nonlocal seen
        for task in tasks:
            seen += 1
            store.faults = [Fault("stream", 0, FaultKind.UNAVAILABLE)] if seen == 2 else []
            yield function(task)

    engine = Recording()
    engine.run = run  # type: ignore[method-assign]
    found = list(verify_archive(store, store.clock, deep=True, checks=partial(scrub_on_engine, settings, engine)))
    assert [one.is_unread for one in found] == [False, True, True, False]


def test_a_store_that_is_gone_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    store = many_partitions(20)
    monkeypatch.setattr(segments, "_TASK_SEGMENTS", 2)
    gone = MemoryStore()
    gone.faults = [Fault("stream", nth, FaultKind.UNAVAILABLE) for nth in range(100)]
    checks = partial(scrub_on_engine, in_memory(monkeypatch, gone), Recording())
    with pytest.raises(StoreUnavailable):
        list(verify_archive(store, store.clock, deep=True, checks=checks))


def test_a_store_that_is_gone_is_waited_for_in_one_task_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    store, settings = many_partitions(2), StoreSettings(url="s3://gone")
    attempts: list[int] = []

    def opened(settings: StoreSettings) -> ObjectStore:
        attempts.append(settings.retry.attempts)
        return store

    monkeypatch.setattr(segments, "store_of", opened)
    planned = Recording()
    list(verify_archive(store, store.clock, checks=partial(scrub_on_engine, StoreSettings(url="s3://other"), planned)))
    (checks,) = planned.tasks
    attempts.clear()
    store.faults = [Fault("stream", nth, FaultKind.UNAVAILABLE) for nth in (0, 1)]
    unread = [[bool(one.unread) for one in scrub(settings, checks)] for _ in range(3)]
    assert unread == [[True] * 4, [True] * 4, [False] * 4]
    patient = settings.retry.attempts
    assert attempts == [patient, 1, 1, patient, patient, patient], "until it answers"


_FAULTS_OF_CHUNKS = """
import resource
import sidecar.verify.segments
source = bytes(2 << 20)
def chunks():
    return [bytes(memoryview(source)) for _ in range(3)]
chunks()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
chunks()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_the_pages_of_freed_chunks_are_used_again() -> None:
    """Else glibc gives them back after each segment. Three chunks have 1,536 pages."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    found = subprocess.run(
        [sys.executable, "-c", _FAULTS_OF_CHUNKS], env=environment, capture_output=True, text=True, check=True
    )
    assert int(found.stdout) < 200


def test_a_task_opens_its_store_by_itself(tmp_path: Path) -> None:
    settings = StoreSettings(url=str(tmp_path))
    many_partitions_into(open_store(settings))
    checks = partial(scrub_on_engine, settings, Recording())
    (found,) = verify_archive(open_store(settings), SystemClock(), deep=True, checks=checks)
    assert found.is_sound


def many_partitions_into(store: ObjectStore) -> None:
    """One lineage in a store of any kind."""
    from tests.archive.example import write_example

    write_example(store)
