"""`before_upload`: rolled segments are compacted among themselves, then archived; and whoever cannot wait goes as it is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from sidecar.archive.keys import below
from sidecar.broker.files import FileBrokerFacts
from sidecar.compactor import group_compactor
from sidecar.compactor.topic_rule import rules_of
from sidecar.discovery.partition_directory import read_partition_directory
from sidecar.engine_ports import StageEngine
from sidecar.errors import SidecarError
from sidecar.host import process_store
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.model import PartitionFiles, PartName, TopicPartition
from sidecar.partition.wait_reason import AwaitingCompaction
from sidecar.rewriting import stages
from sidecar.rewriting.directory import compact_directory
from sidecar.rewriting.local_engine import LocalEngine, LocalEngines
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.snapshots.jobs import Forgetting
from sidecar.storage.bandwidth import BandwidthLimit, IoBudget
from sidecar.store_settings import StoreSettings
from sidecar.topic_policy import TopicPolicy
from sidecar.verify.verify import verify_archive
from tests.compaction.reference.batches import decode_segment
from tests.compactor.before_upload_rig import DELAY_MS, HANGS, NOW_MS, rig, rounds_scan
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.runner.rig import archive, archived_states, ranges, rolled_ranges, tools_for
from tests.segment.made_logs import roll

WAIT_S = 120.0


def files_of(log_dir: Path, partition: str) -> PartitionFiles:
    topic, _, number = partition.rpartition("-")
    return read_partition_directory(TopicPartition(topic, int(number)), log_dir, log_dir / partition)


@pytest.mark.parametrize("partition", ["compacted-0", "orders-0", "codecs-java-0", "transactions-0"])
def test_copies_are_what_compaction_of_these_segments_gives_and_all_else_is_of_the_log_as_it_was(
    partition: str, tmp_path: Path
) -> None:
    with rig(tmp_path, partition) as site:
        assert isinstance(site.round().outcomes[0].reason, AwaitingCompaction)
        assert archived_states(site.store) == {}
        assert site.compactor.cycle()
        report = site.round()
        assert report.errors == []
        assert not site.compactor.cycle()
        assert list(site.copies.iterdir()) == []
        state = archived_states(site.store)[partition]
        decided = [span for span in rolled_ranges(site.log_dir, partition) if span[1] <= HANGS.get(partition, 2**63)]
        assert ranges(state) == decided
        assert 1 in site.generations(partition)
        policy = site.waiting.settings.of_topic("x")
        assert policy is not None
        rules = replace(rules_of(policy, NOW_MS), joins_segments=False, spares_deletes=True)
        out = tmp_path / "expected" / partition
        forgetting = Forgetting(NOW_MS, None)
        compact_directory(files_of(site.log_dir, partition), out, rules, LocalEngine(), forgetting, hash_key=bytes(16))
        expected = {
            segment.base_offset: (out / f"{segment.base_offset:020d}.log").read_bytes() for segment in state.segments
        }
        assert site.stored_logs(partition) == expected
        problems = [found.problems for found in verify_archive(site.store, site.context.clock, deep=True)]
        assert problems == [()]
    raw_store = MemoryStore()
    with tools_for(site.log_dir, raw_store, tmp_path / "raw", producer_id_expiration_ms=None) as context:
        archive(context, site.log_dir)
    raw = archived_states(raw_store)[partition]
    for ours, theirs in zip(state.segments, raw.segments, strict=True):
        assert (ours.leader_epochs, ours.highest_batch_leader_epoch) == (
            theirs.leader_epochs,
            theirs.highest_batch_leader_epoch,
        )
        assert ours.snapshot == theirs.snapshot
        for name in (PartName.PRODUCER_SNAPSHOT, PartName.LEADER_EPOCHS):
            assert part(site.store, state, ours, name) == part(raw_store, raw, theirs, name)
        assert (ours.generation, ours.strategy is None) in {(0, True), (1, False)}


def test_a_copy_has_the_highest_leader_epoch_of_its_log_where_all_records_of_that_lost(tmp_path: Path) -> None:
    """Its empty last batch has it: `verify --deep` compares the commit with the batches of the copy."""
    with rig(tmp_path, "orders-0", topics=[{"pattern": ".*", "strategy": "offset"}]) as site:
        batches = {
            offset: build_batch([Record(offset, NOW_MS - 5_000_000, key, b"")], leader_epoch=epoch)
            for offset, (key, epoch) in enumerate([(b"a", 4), (b"b", 5), (b"b", 5)])
        }
        roll(site.log_dir, {0: [batches[0], batches[1]], 2: [batches[2]], 3: []}, 3)
        (site.log_dir / "orders-0" / "leader-epoch-checkpoint").write_text("0\n2\n4 0\n5 1\n")
        site.round()
        assert site.compactor.cycle()
        assert site.round().errors == []
        copy = archived_states(site.store)["orders-0"].segments[0]
        (log,) = (log for base_offset, log in site.stored_logs("orders-0").items() if base_offset == 0)
        assert [(batch.leader_epoch, len(batch.records)) for batch in decode_segment(log)] == [(4, 1), (5, 0)]
        assert (copy.generation, copy.highest_batch_leader_epoch) == (1, 5)
        assert [found.problems for found in verify_archive(site.store, site.context.clock, deep=True)] == [()]


def part(store: MemoryStore, state: Any, segment: Any, name: PartName) -> bytes:
    found = segment.part(name)
    body = store.objects[below(state.lineage.root, segment.indexes_key)]
    return body[found.position : found.position + found.size_bytes]


def test_topics_with_another_policy_do_not_wait(tmp_path: Path) -> None:
    topics = ["compacted", {"pattern": "orders", "when": "after_upload"}]
    with rig(tmp_path, "compacted-0", "orders-0", "single-0", "append-time-0", topics=topics) as site:
        site.round()
        assert set(archived_states(site.store)) == {"orders-0", "append-time-0"}


def test_what_there_is_no_room_for_waits_for_its_turn(tmp_path: Path) -> None:
    with rig(tmp_path, "compacted-0") as site:
        site.waiting.settings = site.waiting.settings.model_copy(update={"max_job_bytes": 40_000})
        for expected in (2, 4, 5):
            site.round()
            assert site.compactor.cycle()
            site.round()
            assert len(site.generations("compacted-0")) == expected
        assert 0 not in site.generations("compacted-0")


def test_who_has_waited_for_too_long_goes_as_it_is(tmp_path: Path) -> None:
    with rig(tmp_path, "compacted-0") as site:
        site.round()
        assert site.rounds.due_in_s() == DELAY_MS / 1000
        clock = site.context.clock
        assert isinstance(clock, ManualClock)
        clock.advance_ms(DELAY_MS - 1)
        site.round()
        assert archived_states(site.store) == {}
        clock.advance_ms(1)
        site.round()
        assert set(site.generations("compacted-0")) == {0}
        assert not site.compactor.cycle()


class Keeps(FileBrokerFacts):
    """A broker that keeps segments for so long."""

    limit_ms = 1000

    def policy(self, topic: str) -> TopicPolicy:
        return TopicPolicy(cleanup_policy=frozenset({"delete"}), retention_ms=self.limit_ms)


@pytest.mark.parametrize(("limit_ms", "waits"), [(2 * 10**12, True), (1000, False)])
def test_what_the_broker_will_delete_soon_goes_first(limit_ms: int, waits: bool, tmp_path: Path) -> None:
    with rig(tmp_path, "compacted-0") as site:
        for path in (site.log_dir / "compacted-0").iterdir():
            os.utime(path, ns=((NOW_MS - 60_000) * 1_000_000,) * 2)
        facts = Keeps([site.log_dir], assume_leader=True)
        facts.limit_ms = limit_ms
        context = replace(site.context, facts=facts)
        ArchiveLoop(context, rounds_scan(site.log_dir), site.waiting).run_once()
        assert ("compacted-0" not in archived_states(site.store)) == waits


class BrokenEngines(LocalEngines):
    """No engine can be had."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def for_bytes(self, size_bytes: int, *, local_files: bool = False) -> StageEngine:
        raise self.error


@pytest.mark.parametrize("error", [SidecarError("no Java"), ZeroDivisionError("a bug")])
def test_where_compaction_fails_segments_go_as_they_are_and_at_once(error: Exception, tmp_path: Path) -> None:
    with rig(tmp_path, "compacted-0", "orders-0", engines=BrokenEngines(error)) as site:
        site.round()
        with structlog.testing.capture_logs():
            assert site.compactor.cycle()
        assert site.round().errors == []
        assert set(site.generations("compacted-0") + site.generations("orders-0")) == {0}
        assert list(site.copies.iterdir()) == []


def test_a_corrupt_partition_goes_the_way_of_corrupt_partitions_and_others_are_compacted(tmp_path: Path) -> None:
    with rig(tmp_path, "compacted-0", "orders-0") as site:
        path = site.log_dir / "orders-0" / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        data[100] ^= 1
        path.write_bytes(bytes(data))
        site.round()
        assert site.compactor.cycle()
        report = site.round()
        assert [type(error).__name__ for error in report.errors] == ["CorruptFile"]
        assert 1 in site.generations("compacted-0")


def test_records_that_are_too_young_are_not_compacted(tmp_path: Path) -> None:
    with rig(tmp_path, "compacted-0", min_compaction_lag_ms=10**12) as site:
        site.round()
        assert site.compactor.cycle()
        site.round()
        assert set(site.generations("compacted-0")) == {0}


def test_what_rolls_later_is_compacted_on_the_state_that_is_archived(tmp_path: Path) -> None:
    with rig(tmp_path, "transactions-0") as site:
        directory = site.log_dir / "transactions-0"
        later = {
            path: path.read_bytes()
            for path in directory.iterdir()
            if path.name[:20].isdigit() and int(path.name[:20]) > 220
        }
        for path in later:
            path.unlink()
        site.round()
        site.compactor.cycle()
        site.round()
        for path, content in later.items():
            path.write_bytes(content)
        site.round()
        assert site.compactor.cycle()
        assert site.round().errors == []
        assert ranges(archived_states(site.store)["transactions-0"]) == [(0, 116), (116, 220), (220, 431), (431, 603)]
        assert [found.problems for found in verify_archive(site.store, site.context.clock, deep=True)] == [()]


def test_an_upload_that_fails_is_tried_again_with_the_same_copy_and_leaves_nothing(tmp_path: Path) -> None:
    store = MemoryStore(faults=[Fault("upload", 3, FaultKind.UNAVAILABLE, key_part="/segments/")])
    with rig(tmp_path, "compacted-0", store=store) as site:
        site.round()
        site.compactor.cycle()
        assert [type(error).__name__ for error in site.round().errors] == ["StoreUnavailable"]
        assert site.round().errors == []
        state = archived_states(store)["compacted-0"]
        assert ranges(state) == rolled_ranges(site.log_dir, "compacted-0")
        assert 1 in site.generations("compacted-0")
        named = {below(state.lineage.root, key) for s in state.segments for key in (s.log_key, s.indexes_key)}
        assert {key for key in store.objects if "/segments/" in key} == named
        assert list(site.copies.iterdir()) == []


def test_after_a_restart_nothing_of_the_copies_is_taken_for_the_log(tmp_path: Path) -> None:
    store = MemoryStore()

    def stop_it(operation: str, key: str) -> None:
        if operation == "upload" and key.endswith(".indexes"):
            site.context.stop.set()

    with rig(tmp_path / "one", "compacted-0", store=store) as site:
        site.round()
        site.compactor.cycle()
        store.before = stop_it
        site.round()
        log_dir = site.log_dir
    store.before = lambda _operation, _key: None
    with tools_for(log_dir, store, tmp_path / "one" / "state", producer_id_expiration_ms=None) as context:
        assert archive(context, log_dir).errors == []
        assert [found.problems for found in verify_archive(store, context.clock, deep=True)] == [()]
    assert ranges(archived_states(store)["compacted-0"]) == rolled_ranges(log_dir, "compacted-0")


def test_groups_are_read_in_their_turn_at_the_disk_within_the_limit_and_spare_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spared: list[str] = []
    turns: list[int] = []
    begun: list[bool] = []

    @contextmanager
    def noted(path: Path, size_bytes: int) -> Iterator[None]:
        spared.append(path.name)
        yield

    monkeypatch.setattr(group_compactor, "spared", noted)
    with rig(tmp_path, "compacted-0") as found:
        context = found.context
        taking = context.disk_readers.reading

        @contextmanager
        def counted(
            device: int, *, beat: Callable[[], None], is_urgent: bool, gives_way: bool = False, goes_on: bool = False
        ) -> Iterator[None]:
            assert gives_way
            assert not is_urgent
            with taking(device, beat=beat, is_urgent=is_urgent, gives_way=gives_way, goes_on=goes_on):
                turns.append(device)
                begun.append(not goes_on)
                yield

        monkeypatch.setattr(context.disk_readers, "reading", counted)
        clock = ManualClock()
        reads = BandwidthLimit(1000, clock)
        object.__setattr__(context, "budget", IoBudget(BandwidthLimit(None, clock), reads))
        found.round()
        files = list((found.log_dir / "compacted-0").glob("*.log"))
        with process_store.lent(StoreSettings(url="/nowhere"), found.store, context.budget):
            assert found.compactor.cycle()
        (device,) = {path.stat().st_dev for path in files}
        # The pressure is minded at the headers of each segment, also of the active one, and once before the records.
        assert sum(begun) == len(files) + 1
        # A turn for the headers of each segment, one at the beginning, and at least one for each pass over each segment's records.
        assert set(turns) == {device}
        assert len(turns) >= 1 + 3 * (len(files) - 1)
        assert sorted(spared) == sorted(path.name for path in files)[:-1]
        reads.take(0)
        rolled_bytes = sum(path.stat().st_size for path in sorted(files)[:-1])
        assert clock.monotonic_s() >= 2 * rolled_bytes / 1000  # headers and records, at least


def test_uploads_go_on_during_a_long_compaction_and_urgent_ones_do_not_wait_for_a_split_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = ["compacted", {"pattern": "orders", "when": "after_upload"}]
    with rig(tmp_path, "compacted-0", "orders-0", topics=topics) as site:
        directory, hidden = site.log_dir / "orders-0", tmp_path / "hidden"
        directory.rename(hidden)
        site.round()
        hidden.rename(directory)
        scan, rewrite = stages.scan_split, group_compactor.rewritten
        in_split, split_goes_on = threading.Event(), threading.Event()
        between, goes_on = threading.Event(), threading.Event()

        def slow_split(*arguments: Any, **parameters: Any) -> Any:
            in_split.set()
            assert split_goes_on.wait(WAIT_S)
            return scan(*arguments, **parameters)

        def slow_group(*arguments: Any) -> Any:
            between.set()
            assert goes_on.wait(WAIT_S)
            return rewrite(*arguments)

        monkeypatch.setattr(stages, "scan_split", slow_split)
        monkeypatch.setattr(group_compactor, "rewritten", slow_group)
        compaction = threading.Thread(target=site.compactor.cycle)
        compaction.start()
        assert in_split.wait(WAIT_S)
        with site.context.disk_readers.reading(directory.stat().st_dev, beat=lambda: None, is_urgent=True):
            pass
        split_goes_on.set()
        assert between.wait(WAIT_S)
        # The group is not done, and all else is archived.
        assert site.round().errors == []
        assert set(archived_states(site.store)) == {"orders-0"}
        goes_on.set()
        compaction.join(WAIT_S)
        site.round()
        assert 1 in site.generations("compacted-0")
