"""A log that lacks offsets because it was compacted is noted as such, so that nobody takes it for a damaged one."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.archive.commit import Writer
from sidecar.archive.state import PartitionState
from sidecar.compaction.rules import CompactionRules
from sidecar.compactor.archive.plan import CompactionRequest
from sidecar.config.topic_filter import TopicFilter
from sidecar.discovery.scan import scan_log_dirs
from sidecar.errors import LineageUnknown
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.names import CLEANER_CHECKPOINT
from sidecar.model import TopicPartition
from sidecar.restore.request import RestoreRequest
from sidecar.restore.restore import restore
from sidecar.segment.local_disk import LocalDisk
from sidecar.snapshots.disk_partition import DiskPartition
from tests.fakes.memory_store import MemoryStore
from tests.restore.archives import CLOCK, archived, golden_topic_id, own_log_dir, restored
from tests.runner.archives import NOW_MS, compactor, use
from tests.runner.rig import archive, archived_states, copy_partitions, tools_for

OLD = "2.7.2"
"""Its brokers know of no topic ids."""
KEPT = {"between": ([0, 1, 5, 6], 7), "inside": ([0, 2], 3), "at the end": ([0, 1], 5), "nowhere": ([0, 1, 2], 3)}
"""Offsets that are left of a segment, and its end."""


def archived_log(directory: Path, offsets: list[int], end_offset: int, one_batch: bool) -> MemoryStore:
    """Of `orders`, partition 0, which the broker's cleaner has noted."""
    log_dir = copy_partitions(directory / "source")
    partition = log_dir / "orders-0"
    partition.mkdir()
    records = [Record(offset, 1_700_000_000_000, b"k%d" % offset, b"v") for offset in offsets]
    groups = [records] if one_batch else [[record] for record in records]
    batches = b"".join(build_batch(group, leader_epoch=0) for group in groups)
    (partition / f"{0:020d}.log").write_bytes(batches)
    (partition / f"{end_offset:020d}.log").touch()
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", CLEANER_CHECKPOINT):
        (log_dir / name).write_text(f"0\n1\norders 0 {end_offset}\n")
    store = MemoryStore()
    with tools_for(log_dir, store, directory / "state") as context:
        assert archive(context, log_dir, "orders").errors == []
    return store


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("where", KEPT)
def test_where_offsets_are_missing_the_cleaner_is_said_to_have_been(
    where: str, interrupted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived_log(tmp_path, *KEPT[where], one_batch=where == "inside")
    log_dir, topic_partition = own_log_dir(tmp_path), TopicPartition("orders", 0)
    request = RestoreRequest("orders", log_dir, topic_id=golden_topic_id("orders"))
    if interrupted:
        with monkeypatch.context() as patch:
            patch.setattr("sidecar.restore.restore.Run.finish", _killed)
            with pytest.raises(KeyboardInterrupt):
                restore(store, CLOCK, request)
    report = restore(store, CLOCK, request)
    assert report.exit_code == 0, report.outcomes[0].problem
    assert report.outcomes[0].segments_resumed == int(interrupted)
    assert report.outcomes[0].to_json()["compacted"] == (where != "nowhere")
    path = log_dir / CLEANER_CHECKPOINT
    if where == "nowhere":
        assert not path.exists()
        return
    # The log's start, not its end: nothing is known to be clean by the broker's own rule.
    assert read_offset_checkpoint(path.read_bytes()) == {topic_partition: 0}
    assert LocalDisk().first_dirty_offset(log_dir, topic_partition) == 0
    (files,) = scan_log_dirs([log_dir], TopicFilter((".*",))).partitions
    assert DiskPartition(files).compacted
    assert {found.name for found in (log_dir / "orders-0").iterdir() if found.suffix == ".note"} == set()
    # It is archived anew without a hole.
    again = MemoryStore()
    with tools_for(log_dir, again, tmp_path / "again") as context:
        assert archive(context, log_dir, "orders").errors == []
    assert archived_states(again)["orders-0"].end_offset == archived_states(store)["orders-0"].end_offset


@pytest.fixture(name="old")
def _old(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The archive of such a broker, which compactions open."""
    store = archived(OLD)
    use(monkeypatch, store)
    return store


@pytest.mark.parametrize("topic", ["legacy-v0", "legacy-v1", "legacy-mixed"])
def test_the_archive_that_a_compaction_wrote_goes_on_with_the_log_restored_from_it(
    topic: str, old: MemoryStore, tmp_path: Path
) -> None:
    """Of a broker before 2.8: no topic id says that it is the same log, and no batch is the broker's own."""
    name, log_dir = f"{topic}-0", own_log_dir(tmp_path, OLD)
    before = archived_states(old)[name]
    end_offset = before.segments[-1].end_offset
    assert _compacted(old, before, end_offset) > 0
    assert restored(old, log_dir, topic, OLD).problem == ""
    _write(log_dir, topic, range(end_offset, end_offset + 1), before.leader_epoch)
    with tools_for(log_dir, old, tmp_path / "state", OLD) as context:
        assert archive(context, log_dir, topic).errors == []
    assert archived_states(old)[name].end_offset == end_offset + 1


@pytest.mark.parametrize("topic", ["legacy-v1", "compacted"])
def test_the_archive_does_not_go_on_with_a_log_that_was_restored_in_part_and_goes_on_otherwise(
    topic: str, old: MemoryStore, tmp_path: Path
) -> None:
    """What is restored is the archive's own. What the broker wrote above it is not, under the same leader epoch or none."""
    name, log_dir = f"{topic}-0", own_log_dir(tmp_path, OLD)
    before = archived_states(old)[name]
    cut, end_offset = before.segments[-1].base_offset, before.segments[-1].end_offset
    _compacted(old, before, cut)
    assert restored(old, log_dir, topic, OLD, offset_range=(0, cut)).problem == ""
    _write(log_dir, topic, range(cut, end_offset + 1), before.leader_epoch)
    with tools_for(log_dir, old, tmp_path / "state", OLD) as context:
        (error,) = archive(context, log_dir, topic).errors
    assert isinstance(error, LineageUnknown)
    assert archived_states(old)[name].end_offset == end_offset


def _compacted(store: MemoryStore, state: PartitionState, end_offset: int) -> int:
    """Compact the archive up to there. How many records that took."""
    writer = Writer(1, state.leader_epoch, "test")
    request = CompactionRequest(state.lineage.root, CompactionRules(NOW_MS), writer, end_offset)
    (found,) = compactor(store).compact([request])
    assert (found.error, found.commit_number is None) == (None, False)
    return found.records_before - found.records_after


def _write(log_dir: Path, topic: str, offsets: range, leader_epoch: int) -> None:
    """A rolled segment, of records that are not archived, as the broker would write it after a restore."""
    records = [Record(offset, NOW_MS, b"%d" % offset, b"other") for offset in offsets]
    new = b"".join(build_batch([record], leader_epoch=leader_epoch) for record in records)
    (log_dir / f"{topic}-0" / f"{offsets.start:020d}.log").write_bytes(new)
    (log_dir / f"{topic}-0" / f"{offsets.stop:020d}.log").touch()
    for checkpoint in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (log_dir / checkpoint).write_text(f"0\n1\n{topic} 0 {offsets.stop}\n")


def _killed(*_: object) -> None:
    raise KeyboardInterrupt
