"""What an archive of golden partitions holds that `run` has compacted by offset, beside what a consumer of the log would have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.bodies.records import read_records
from sidecar.model import ObjectKey
from tests.fakes.manual_clock import ManualClock
from tests.golden import golden
from tests.real.product import store_of
from tests.runner.rig import archived_states
from tests.verifying import verify_partition

LOGS = golden("4.3.0") / "logs"


def records(log: bytes, base_offset: int) -> Iterable[Record]:
    """All data records of a log."""
    for columns in scan_bytes(log, base_offset=base_offset):
        for position, size_bytes in zip(columns.position.tolist(), columns.size_bytes.tolist(), strict=True):
            yield from (r for r in read_records(memoryview(log)[position : position + size_bytes]) if r.control is None)


def table(found: Iterable[Record]) -> dict[bytes, tuple[int, bytes | None]]:
    """What a consumer has who read them all. Records without key are dropped by compaction, as by Kafka's."""
    return {record.key: (record.offset, record.value) for record in found if record.key is not None}


def archived_records(settings: Mapping[str, str], partition: str) -> list[Record]:
    with store_of(settings) as store:
        state = archived_states(store)[partition]
        logs = [(store.read(below(state.lineage.root, s.log_key)), s.base_offset) for s in state.segments]
    return [record for log, base_offset in logs for record in records(log, base_offset)]


def rolled_records(partition: str, end_offset: int) -> list[Record]:
    logs = [(path.read_bytes(), int(path.name[:20])) for path in sorted((LOGS / partition).glob("*.log"))]
    return [record for log, base in logs for record in records(log, base) if record.offset < end_offset]


def state_of(settings: Mapping[str, str], partition: str) -> PartitionState:
    with store_of(settings) as store:
        return archived_states(store)[partition]


def clean_end(settings: Mapping[str, str], partition: str) -> int:
    """0 before the first compaction."""
    clean = state_of(settings, partition).clean
    return 0 if clean is None else clean.end_offset


def assert_compacted(settings: Mapping[str, str], partition: str) -> None:
    """One record per key, each key's last; nothing of the coverage is lost, and all of it can be read back."""
    state = state_of(settings, partition)
    assert state.end_offset is not None
    after = archived_records(settings, partition)
    expected = table(rolled_records(partition, state.end_offset))
    assert table(after) == expected
    assert len(after) == len(expected)
    with store_of(settings) as store:
        found = verify_partition(store, ObjectKey(state.lineage.root), ManualClock(0), deep=True)
    assert found.problems == ()
