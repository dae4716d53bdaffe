"""What a compaction of an archive reads from the store: each segment once where copies fit beside the work files, else twice."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.archive import archived_log
from sidecar.compactor.archive.archived_log import RANGE_BYTES, ArchivedSurvey
from sidecar.compactor.archive.compactor import ArchiveCompactor
from sidecar.compactor.archive.plan import CompactionRequest
from sidecar.engine_ports import Stages
from sidecar.errors import PartitionError
from sidecar.logformat.bodies.building import build_batch, build_marker
from sidecar.logformat.bodies.record import Record
from sidecar.model import ObjectKey
from sidecar.ports import OnFacts
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.rewriting.packing import plan_copies
from sidecar.rewriting.what_if import what_if
from sidecar.rewriting.work_files import WorkFile, nameless_file
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.archives import NOW_MS, SETTINGS, WRITER, log_of, only_state, reference_logs, sound, use
from tests.runner.rig import archive, copy_partitions, tools_for
from tests.segment.made_logs import LEADER_EPOCH, roll

BATCHES, VALUE_BYTES, SEGMENTS, KEYS = 100, 100_000, 4, 50
MIB = 1024 * 1024


class CountingStore(MemoryStore):
    """Counts reads of objects, and their bytes."""

    requests = size_bytes = 0

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        found = super().read(key, position, size_bytes, whole=whole)
        with self._lock:
            self.requests, self.size_bytes = self.requests + 1, self.size_bytes + len(found)
        return found

    def stream(
        self, key: ObjectKey, chunk_bytes: int = 4 * MIB, *, checked: bool = True, on_facts: OnFacts | None = None
    ) -> Iterator[bytes]:
        self.requests += 1
        for chunk in super().stream(key, chunk_bytes, checked=checked, on_facts=on_facts):
            self.size_bytes += len(chunk)
            yield chunk


def open_at_each_border() -> dict[int, tuple[bytes, ...]]:
    """Segments of 10 MB. A transaction is open at the end of each, and ends in the next one: aborted, committed, in turn."""
    random, segments, offset, sequence = Random(1), dict[int, tuple[bytes, ...]](), 0, 0
    for number in range(SEGMENTS):
        base_offset, batches = offset, []
        if number:
            batches.append(
                build_marker(
                    offset,
                    commit=number % 2 == 0,
                    producer_id=7,
                    producer_epoch=0,
                    coordinator_epoch=0,
                    timestamp_ms=NOW_MS - 9_000,
                    leader_epoch=LEADER_EPOCH,
                )
            )
            offset += 1
        for at in range(BATCHES):
            record = Record(offset, NOW_MS - 9_000, b"k%d" % random.randrange(KEYS), random.randbytes(VALUE_BYTES))
            opens = at == BATCHES - 1 and number < SEGMENTS - 1
            producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence} if opens else {}
            batches.append(build_batch([record], leader_epoch=LEADER_EPOCH, transactional=opens, **producer))
            offset, sequence = offset + 1, sequence + opens
        segments[base_offset] = tuple(batches)
    return {**segments, offset: ()}


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> MemoryStore:
    path = tmp_path_factory.mktemp("archived")
    store = MemoryStore(ManualClock(NOW_MS))
    log_dir, segments = copy_partitions(path, "orders-0"), open_at_each_border()
    roll(log_dir, segments, max(segments))
    with tools_for(log_dir, store, path / "state") as context:
        assert archive(context, log_dir).errors == []
    return store


@pytest.mark.parametrize(("threads", "strategy"), [(1, Strategy.TIMESTAMP), (3, Strategy.OFFSET)])
@pytest.mark.parametrize(
    ("has_work_dir", "free_bytes", "times"),
    [(True, 1 << 40, 1.1), (True, 35_000_000, 2.0), (False, 0, 2.0), (True, 0, 3.0)],
)
def test_each_segment_is_read_once_where_copies_fit_and_else_twice(
    archived: MemoryStore,
    has_work_dir: bool,
    free_bytes: int,
    times: float,
    strategy: Strategy,
    threads: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = CountingStore(ManualClock(NOW_MS))
    store.objects, store.modified_ms = dict(archived.objects), dict(archived.modified_ms)
    use(monkeypatch, store)
    before = only_state(store)
    input_bytes = sum(len(log_of(store, before, segment)) for segment in before.segments)
    rules = CompactionRules(NOW_MS, strategy=strategy)
    compactor = ArchiveCompactor(
        SETTINGS,
        LocalEngine(threads),
        store.clock,
        tmp_path if has_work_dir else None,
        split_bytes=2 * MIB,
        free_bytes=lambda _: free_bytes,
    )
    store.requests = store.size_bytes = 0
    (result,) = compactor.compact([CompactionRequest(before.lineage.root, rules, WRITER)])
    read_bytes, requests = store.size_bytes, store.requests
    assert result.error is None
    assert read_bytes <= times * input_bytes
    if times < 2:
        ranges = sum(-(-len(log_of(store, before, segment)) // RANGE_BYTES) for segment in before.segments)
        assert requests <= ranges + 16 * SEGMENTS
    after = only_state(store)
    groups = [len(output.sources) for output in result.outputs]
    assert [log_of(store, after, segment) for segment in after.segments] == reference_logs(store, before, rules, groups)
    assert list(tmp_path.iterdir()) == []
    sound(store)


def test_a_segment_that_was_judged_otherwise_than_the_whole_log_replaces_nothing(
    archived: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(ManualClock(NOW_MS))
    store.objects, store.modified_ms = dict(archived.objects), dict(archived.modified_ms)
    use(monkeypatch, store)
    monkeypatch.setattr(ArchivedSurvey, "_ended_later", lambda _survey: iter(()))
    request = CompactionRequest(only_state(store).lineage.root, CompactionRules(NOW_MS), WRITER)
    (result,) = ArchiveCompactor(SETTINGS, LocalEngine(), store.clock, tmp_path).compact([request])
    assert isinstance(result.error, PartitionError)
    assert "differ on which records are aborted" in str(result.error)
    assert store.objects == archived.objects


@pytest.mark.parametrize(("is_there", "expected"), [(True, "staging"), (False, None)])
def test_a_forecast_puts_copies_into_the_staging_directory_or_nowhere(
    archived: MemoryStore, is_there: bool, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first compaction there is no such directory. In a pod /tmp has 1 GiB, and more evicts the broker, too."""
    use(monkeypatch, archived)
    places = set[str]()

    def recorded(place: Path) -> AbstractContextManager[WorkFile]:
        places.add(place.name)
        return nameless_file(place)

    monkeypatch.setattr(archived_log, "nameless_file", recorded)
    staging = tmp_path / "staging"
    if is_there:
        staging.mkdir()
    engine = LocalEngine()
    compactor = ArchiveCompactor(SETTINGS, engine, archived.clock, staging)
    job = compactor.job_of(CompactionRequest(only_state(archived).lineage.root, CompactionRules(NOW_MS), WRITER))
    assert job is not None
    assert len(list(what_if(job, [Strategy.OFFSET], engine))) == 1
    assert places == ({expected} if expected else set())


class DriverTraffic(LocalEngine):
    """Counts the bytes of what a driver of Spark would send to tasks and get from them."""

    size_bytes = 0

    def count(self, value: Any) -> None:
        self.size_bytes += len(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))

    @contextmanager
    def staged(self, stages: Stages, tasks: Sequence[Any]) -> Iterator[Any]:
        for task in tasks:
            self.count(task)
        with super().staged(stages, tasks) as run:
            self.count(run.answers)

            def counted(function: Any, plans: Sequence[Any], uploads: bool) -> list[Any]:
                self.count(plans)
                answers = run.third(function, plans, uploads)
                self.count(answers)
                return answers

            yield replace(run, third=counted)


def test_next_to_nothing_goes_through_the_driver(
    archived: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(ManualClock(NOW_MS))
    store.objects, store.modified_ms = dict(archived.objects), dict(archived.modified_ms)
    use(monkeypatch, store)
    before, engine = only_state(store), DriverTraffic()
    input_bytes = sum(len(log_of(store, before, segment)) for segment in before.segments)
    compactor = ArchiveCompactor(SETTINGS, engine, store.clock, None, split_bytes=2 * MIB)
    (result,) = compactor.compact([CompactionRequest(before.lineage.root, CompactionRules(NOW_MS), WRITER)])
    assert result.error is None
    assert 1_000 < engine.size_bytes <= input_bytes // 100


@pytest.mark.parametrize(
    ("sizes", "cores", "free_bytes", "max_bytes", "expected"),
    [
        ([], 2, 0, MIB, (0, True)),
        ([10, 10, 10], 2, 1 << 40, 1 << 40, (3, True)),
        ([10, 10, 10], 2, 60 + 29, 1 << 40, (2, True)),  # results may take 60 bytes
        ([10, 10, 10], 2, 59, 1 << 40, (0, True)),
        ([10, 10, 10], 2, 19, 1 << 40, (0, False)),  # two are scanned at once
        ([10, 10, 10], 4, 29, 1 << 40, (0, False)),
        ([10, 10, 10], 2, 1 << 40, 40, (2, True)),  # half of what may wait
        ([10, 10, 10], 2, 1 << 40, 29, (0, True)),  # the largest one's results need 20
        ([10, 10, 10], 2, 1 << 40, 19, (0, False)),
    ],
)
def test_copies_take_nothing_that_results_may_need(
    sizes: list[int], cores: int, free_bytes: int, max_bytes: int, expected: tuple[int, bool]
) -> None:
    assert plan_copies(sizes, cores, free_bytes, max_bytes) == expected
