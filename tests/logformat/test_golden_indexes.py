"""The indexes and epoch files that real brokers wrote: read, checked and rebuilt, against Kafka's own dump of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

from producer_state.replay import CompletedTransaction, replay
from producer_state.table import ProducerTable
from sidecar.logformat.batches import scan_file
from sidecar.logformat.indexes.offset_index import OffsetIndexCheck
from sidecar.logformat.indexes.rebuild import BuiltIndexes, IndexBuilder
from sidecar.logformat.indexes.time_index import TimeIndexCheck, read_time_index
from sidecar.logformat.indexes.transaction_index import TransactionIndexCheck, read_transaction_index
from sidecar.logformat.indexes.verdict import IndexState
from sidecar.logformat.leader_epochs import LeaderEpochCheck, LeaderEpochs, complete, epochs_of, read_leader_epochs
from sidecar.logformat.names import LEADER_EPOCH_CHECKPOINT, Suffix, file_name, parse_file_name
from tests.golden import VERSIONS, dump_text, dumped_paths, golden, manifest, partitions
from tests.logformat.dumped import dump_file

LOG_DIRS = ("logs", "compacted")
INDEX_INTERVAL_BYTES = 1024
"""As the generator configured the brokers."""

DUMP_NAMES = {"timestamp": "timestamp_ms", "producerId": "producer_id", "firstOffset": "first_offset"} | {
    "lastOffset": "last_offset",
    "lastStableOffset": "last_stable_offset",
}


@dataclass(frozen=True)
class Segment:
    """A segment, rolled or active (the brokers were stopped cleanly, so active ones are trimmed too)."""

    version: str
    log: Path
    base_offset: int
    end_offset: int | None

    def file(self, suffix: Suffix) -> bytes | None:
        path = self.log.with_name(file_name(self.base_offset, suffix))
        return path.read_bytes() if path.exists() else None

    @property
    def epochs(self) -> LeaderEpochs:
        path = self.log.with_name(LEADER_EPOCH_CHECKPOINT)
        return read_leader_epochs(path.read_bytes()) if path.exists() else LeaderEpochs()

    @property
    def reopened(self) -> bool:
        """Whether the broker was restarted while this segment was active: each restart began an epoch."""
        starts = (entry.start_offset for entry in self.epochs.entries)
        return any(
            self.base_offset < start and (self.end_offset is None or start < self.end_offset) for start in starts
        )

    def __str__(self) -> str:
        return f"{self.version}/{self.log.parent.parent.name}/{self.log.parent.name}/{self.base_offset}"


def segments(version: str, log_dir: str) -> Iterator[Segment]:
    for directory in partitions(version, log_dir):
        yield from segments_of(version, directory)


def segments_of(version: str, directory: Path) -> Iterator[Segment]:
    logs = sorted(directory.glob("*.log"))
    for log, following in zip_longest(logs, logs[1:]):
        yield Segment(version, log, int(log.stem), int(following.stem) if following else None)


def rebuilt(segment: Segment) -> BuiltIndexes:
    builder = IndexBuilder(segment.base_offset, INDEX_INTERVAL_BYTES)
    scanner = scan_file(segment.log, base_offset=segment.base_offset, max_batches=7)
    for columns in scanner:
        builder.add(columns)
    scanner.require_exact()
    return builder.finish()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_entry_is_as_kafkas_own_tool_prints_it(version: str) -> None:
    compared = 0
    for relative_path in dumped_paths(version):
        path = golden(version) / relative_path
        found = dump_file(path.name, path.read_bytes())
        if found is not None:
            lines = dump_text(version, relative_path).splitlines()
            expected = [_printed(line) for line in lines if line]
            assert [json.loads(json.dumps(entry)) for entry in found] == expected, relative_path
            compared += len(expected)
    assert compared > 500


def _printed(line: str) -> dict[str, int]:
    values = {name: int(value) for name, value in re.findall(r"(\w+): (-?\d+)", line)}
    assert values.pop("version", 0) == 0
    return {DUMP_NAMES.get(name, name): value for name, value in values.items()}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("log_dir", LOG_DIRS)
def test_every_index_passes_the_check(version: str, log_dir: str) -> None:
    for segment in segments(version, log_dir):
        offset_check = OffsetIndexCheck(segment.file(Suffix.OFFSET_INDEX), segment.base_offset)
        time_check = TimeIndexCheck(segment.file(Suffix.TIME_INDEX), segment.base_offset)
        for columns in scan_file(segment.log, max_batches=5):
            offset_check.add(columns)
            time_check.add(columns)
        # A wrong rebuilt index keeps the checks from taking the short way.
        for verdict in (offset_check.finish(b"?"), time_check.finish(b"?")):
            assert verdict.state is IndexState.FINE, f"{segment}: {verdict.reason}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("log_dir", LOG_DIRS)
def test_a_rebuilt_offset_index_equals_the_brokers(version: str, log_dir: str) -> None:
    """Except where chunks of several batches were appended, or a restart set the byte counter to zero."""
    equal = 0
    for segment in segments(version, log_dir):
        in_chunks = segment.log.parent.name.startswith("legacy") or (version == "2.7.2" and log_dir == "compacted")
        if not in_chunks and not segment.reopened:
            assert rebuilt(segment).offset_index == (segment.file(Suffix.OFFSET_INDEX) or b""), str(segment)
            equal += 1
    assert equal >= (0 if (version, log_dir) == ("2.7.2", "compacted") else 5)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("log_dir", LOG_DIRS)
def test_a_rebuilt_time_index_equals_the_brokers(version: str, log_dir: str) -> None:
    """With the same exceptions; and leaders before 3.8 noted a record's offset, not that of its batch's end."""
    equal = 0
    for segment in segments(version, log_dir):
        in_chunks = segment.log.parent.name.startswith("legacy") or (version == "2.7.2" and log_dir == "compacted")
        if not in_chunks and not segment.reopened:
            found = read_time_index(segment.file(Suffix.TIME_INDEX) or b"", segment.base_offset)
            ours = read_time_index(rebuilt(segment).time_index, segment.base_offset)
            assert found.timestamp_ms.tolist() == ours.timestamp_ms.tolist(), str(segment)
            last_offsets = np.concatenate([columns.last_offset for columns in scan_file(segment.log)] or [ours.offset])
            in_batch = last_offsets[np.searchsorted(last_offsets, found.offset)] if len(found) else found.offset
            assert in_batch.tolist() == ours.offset.tolist(), str(segment)
            assert version == "2.7.2" or found.offset.tolist() == ours.offset.tolist(), str(segment)
            equal += 1
    assert equal >= (0 if (version, log_dir) == ("2.7.2", "compacted") else 5)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("log_dir", LOG_DIRS)
def test_every_transaction_index_passes_and_equals_the_rebuilt_one(version: str, log_dir: str) -> None:
    """Equal but for empty transactions, which 2.7 indexed and which a cleaner makes by removing aborted records."""
    entries = 0
    for directory in partitions(version, log_dir):
        state = ProducerTable.blank()
        for segment in segments_of(version, directory):
            data = segment.file(Suffix.TRANSACTION_INDEX)
            check, builder = TransactionIndexCheck(data, segment.base_offset), IndexBuilder(segment.base_offset)
            completed: list[CompletedTransaction] = []
            for columns in scan_file(segment.log, max_batches=5):
                check.add(columns)
                builder.add(columns)
                state, transactions = replay(state, columns.facts())
                completed += transactions
            ours = builder.finish(completed).transaction_index
            verdict = check.finish(ours)
            assert verdict.state is IndexState.FINE, f"{segment}: {verdict.reason}"
            if log_dir == "logs":
                theirs = read_transaction_index(data or b"")
                assert theirs[theirs.first_offset < theirs.last_offset].to_bytes() == ours, str(segment)
                assert version == "2.7.2" or (data or b"") == ours, str(segment)
            entries += len(ours) // 34
    assert entries >= (0 if log_dir == "compacted" else 5)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("log_dir", LOG_DIRS)
def test_leader_epochs_agree_with_every_batch(version: str, log_dir: str) -> None:
    for directory in partitions(version, log_dir):
        path = directory / LEADER_EPOCH_CHECKPOINT
        if path.exists():
            data = path.read_bytes()
            epochs = read_leader_epochs(data)
            assert epochs.to_text() == data
            check = LeaderEpochCheck(epochs, _log_start_offset(version, directory))
            for log in directory.glob("*.log"):
                for columns in scan_file(log):
                    check.add(columns)


@pytest.mark.parametrize("version", VERSIONS)
def test_rebuilt_leader_epochs_equal_the_brokers(version: str) -> None:
    """But for the newest epoch, which has an entry at the log's end before it has a batch."""
    for directory in partitions(version):
        logs = sorted(directory.glob("*.log"))
        built = [rebuilt(Segment(version, log, int(log.stem), None)) for log in logs]
        pairs = [(entry.epoch, entry.start_offset) for one in built for entry in one.leader_epochs.entries]
        # Like the broker: one cache over all segments, an epoch counts only if it is higher than all before.
        highest = [pair for number, pair in enumerate(pairs) if all(pair[0] > before[0] for before in pairs[:number])]
        from_batches = epochs_of(highest).truncate_from_start(_log_start_offset(version, directory))
        path = directory / LEADER_EPOCH_CHECKPOINT
        is_legacy = any((columns.leader_epoch < 0).any() for log in logs for columns in scan_file(log))
        if is_legacy or not from_batches.entries:
            continue
        known = read_leader_epochs(path.read_bytes())
        end_offset = max(one.last_offset + 1 for one in built if one.last_offset is not None)
        assert from_batches == known.truncate_from_end(end_offset), str(directory)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_v2_segment_has_a_map_of_epochs_that_begins_at_its_base(version: str) -> None:
    """Also where DeleteRecords has moved the log start, and with it the checkpoint, above the segment's base."""
    completed_topics, topics_without = set(), set()
    for segment in segments(version, "logs"):
        topic = segment.log.parent.name.rpartition("-")[0]
        built = rebuilt(segment)
        epochs = complete(segment.epochs, built.epochs_from_base, segment.base_offset)
        if not epochs.covers(segment.base_offset):
            topics_without.add(topic)
            continue
        found = epochs.in_range(segment.base_offset, segment.end_offset or segment.base_offset + 1)
        assert found.entries[0].start_offset == segment.base_offset
        check = LeaderEpochCheck(epochs, segment.base_offset)
        for columns in scan_file(segment.log):
            check.add(columns)
        if epochs != segment.epochs:
            completed_topics.add(topic)
    assert completed_topics == {"trimmed"}
    legacy = {"legacy-v0", "legacy-v1", "legacy-v1-append-time", "legacy-mixed"}
    assert topics_without == (legacy if version == "2.7.2" else set())


def _log_start_offset(version: str, directory: Path) -> int:
    topic, _, partition = directory.name.rpartition("-")
    return int(manifest(version)["topics"][topic]["partitions"][int(partition)]["log_start_offset"])


@pytest.mark.parametrize("version", VERSIONS)
def test_every_file_name_of_a_partition_is_known_or_fixed(version: str) -> None:
    for directory in partitions(version):
        others = {path.name for path in directory.iterdir() if parse_file_name(path.name) is None}
        assert others <= {LEADER_EPOCH_CHECKPOINT, "partition.metadata"}
