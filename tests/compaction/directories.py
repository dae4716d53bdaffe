"""Directories compacted as the command does it, and what a reader must find there."""

from __future__ import annotations

from pathlib import Path

from producer_state.table import ProducerTable
from sidecar.compaction.last_batches import LastBatches
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction.segments import SPLIT_BYTES
from sidecar.discovery.partition_directory import named_partition
from sidecar.engine_ports import StageEngine
from sidecar.logformat.batches import scan_file
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.indexes.offset_index import OffsetIndexCheck
from sidecar.logformat.indexes.time_index import TimeIndexCheck
from sidecar.logformat.indexes.transaction_index import from_completed, read_transaction_index
from sidecar.logformat.indexes.verdict import FINE
from sidecar.logformat.names import (
    CLEANER_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    parse_directory_name,
)
from sidecar.rewriting.directory import Compaction, compact_directory
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.snapshots.jobs import Forgetting
from tests.compaction.partitions import partition_in
from tests.compaction.reference.cleaning import clean

DAY_MS = 86_400_000
HASH_KEY = bytes(range(16))


def compacted(
    source: Path,
    out: Path | None,
    rules: CompactionRules,
    engine: StageEngine | None = None,
    *,
    include_active: bool = False,
    split_bytes: int = SPLIT_BYTES,
) -> Compaction:
    return compact_directory(
        named_partition(source),
        out,
        rules,
        engine or LocalEngine(),
        Forgetting(rules.now_ms, DAY_MS),
        hash_key=HASH_KEY,
        include_active=include_active,
        split_bytes=split_bytes,
    )


def tree(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Every file by name, with its time if it is a log or an index."""
    return {
        path.name: (0 if path.suffix == ".snapshot" else path.stat().st_mtime_ns, path.read_bytes())
        for path in directory.iterdir()
    }


def checkpoint_of(partition: Path, name: str) -> int | None:
    """What the log dir of a partition directory says of it."""
    path = partition.parent / name
    named = parse_directory_name(partition.name)
    if named is None or not path.exists():
        return None
    return read_offset_checkpoint(path.read_bytes()).get(named.topic_partition)


def check_against_reference(source: Path, compaction: Compaction, rules: CompactionRules) -> None:
    """Logs, transaction indexes, and all that is copied."""
    out = compaction.out
    assert out is not None
    partition = partition_in(source)
    count = sum(len(output.sources) for output in compaction.outputs)
    expected_names = set()
    if count:
        end_offset = compaction.outputs[-1].end_offset
        snapshot = (out / f"{end_offset:020d}.snapshot").read_bytes()
        reference = clean(
            partition.segments[:count],
            rules,
            groups=[len(output.sources) for output in compaction.outputs],
            last_batches=LastBatches.of(ProducerTable.from_snapshot(end_offset, snapshot)),
            aborted=partition.aborted,
            log_start_offset=checkpoint_of(source, LOG_START_CHECKPOINT) or 0,
            compacted_below=checkpoint_of(source, CLEANER_CHECKPOINT),
        )
        for group, output in zip(reference.groups, compaction.outputs, strict=True):
            stem = out / f"{output.base_offset:020d}"
            assert stem.with_suffix(".log").read_bytes() == group.log
            assert output.size_bytes == len(group.log)
            index = stem.with_suffix(".txnindex")
            found = read_transaction_index(index.read_bytes() if index.exists() else b"")
            assert found.last_offset.tolist() == [transaction.last_offset for transaction in group.transactions]
            expected_names |= {f"{stem.name}.{suffix}" for suffix in ("log", "index", "timeindex")}
            expected_names |= {index.name} if group.transactions else set()
    for file in compaction.left_alone:
        stem = f"{file.base_offset:020d}"
        assert (out / f"{stem}.log").read_bytes() == (source / f"{stem}.log").read_bytes()
        ended = [found for found in partition.aborted if file.base_offset <= found.last_offset < file.end_offset]
        index = out / f"{stem}.txnindex"
        assert (index.read_bytes() if index.exists() else b"") == from_completed(
            ended, file.base_offset, file.end_offset
        ).to_bytes()
        batches = list(scan_file(source / f"{stem}.log"))
        for suffix, check in (
            ("index", OffsetIndexCheck),
            ("timeindex", TimeIndexCheck),
        ):
            written = out / f"{stem}.{suffix}"
            assert written.stat().st_mtime_ns == (source / f"{stem}.log").stat().st_mtime_ns
            checked = check(written.read_bytes(), file.base_offset)
            for columns in batches:
                checked.add(columns)
            assert checked.finish(b"") == FINE
        expected_names |= {f"{stem}.{suffix}" for suffix in ("log", "index", "timeindex")} | (
            {index.name} if ended else set()
        )
    for name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
        if (source / name).exists():
            assert (out / name).read_bytes() == (source / name).read_bytes()
        if name == LEADER_EPOCH_CHECKPOINT or (source / name).exists():
            expected_names.add(name)
    ends = [output.end_offset for output in compaction.outputs] + [file.end_offset for file in compaction.left_alone]
    first = min(int(path.stem) for path in out.glob("*.log"))
    expected_names |= {f"{end:020d}.snapshot" for end in ends}
    expected_names |= {path.name for path in source.glob(f"{first:020d}.snapshot")}
    assert {path.name for path in out.iterdir()} == expected_names
