"""Archives of golden partitions in memory, log dirs to restore into, and a plain reader of what came of it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from sidecar.archive.actions import Lost, Remove
from sidecar.archive.commit import Writer
from sidecar.archive.state import PartitionState
from sidecar.commits.commit_log import CommitLog
from sidecar.logformat.batches import scan_file
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.bodies.records import read_records
from sidecar.logformat.headers import BatchFlag
from sidecar.ports import ObjectStore
from sidecar.restore.outcome import PartitionOutcome
from sidecar.restore.request import LeaderEpochMode, RestoreRequest
from sidecar.restore.restore import restore
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden, manifest
from tests.runner.rig import archive, archived_states, tools_for

CLOCK = ManualClock(1_700_000_000_000)


@cache
def _archived_objects(version: str) -> dict[str, bytes]:
    store = MemoryStore()
    with TemporaryDirectory() as state, tools_for(golden(version) / "logs", store, Path(state), version) as context:
        archive(context, golden(version) / "logs")
    return store.objects


def archived(version: str = "4.3.0", **options: Any) -> MemoryStore:
    """A store of its own with everything that a golden directory gives."""
    store = MemoryStore(**options)
    store.objects = dict(_archived_objects(version))
    return store


def lose(store: ObjectStore, name: str, base_offset: int) -> PartitionState:
    """Record the archived segment at a base as lost; the state after that."""
    state = archived_states(store)[name]
    (gone,) = (segment for segment in state.segments if segment.base_offset == base_offset)
    span = (gone.base_offset, gone.end_offset, "damaged")
    log = CommitLog(store, state.lineage.root, CLOCK)
    writer = Writer(1, state.leader_epoch, "test")
    return log.append([Remove(gone.segment_id, *span), Lost(*span)], writer, log.read())


def own_log_dir(directory: Path, version: str = "4.3.0") -> Path:
    """An empty log dir of the golden broker's cluster."""
    log_dir = directory / "data"
    log_dir.mkdir()
    (log_dir / "meta.properties").write_bytes((golden(version) / "logs" / "meta.properties").read_bytes())
    return log_dir


def other_log_dir(directory: Path) -> Path:
    """One of another cluster, KRaft."""
    log_dir = directory / "other"
    log_dir.mkdir()
    (log_dir / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=3OtherClusterId0000000\n")
    return log_dir


def golden_topic_id(topic: str, version: str = "4.3.0") -> str | None:
    found: str | None = manifest(version)["topics"].get(topic, {}).get("topic_id")
    return found


def restored(store: MemoryStore, log_dir: Path, topic: str, version: str = "4.3.0", **request: Any) -> PartitionOutcome:
    """Restore one partition, by default 0, and the golden topic's id; its outcome. Without ids the epochs are kept."""
    topic_id = golden_topic_id(topic, version)
    defaults = {"partitions": (0,), "topic_id": topic_id, "leader_epochs": None if topic_id else LeaderEpochMode.KEEP}
    request = defaults | request
    (outcome,) = restore(store, CLOCK, RestoreRequest(topic, log_dir, **request), workers=2).outcomes
    return outcome


class Batch(NamedTuple):
    """A batch in a `.log`: its place, its header's leader epoch, and its bytes."""

    segment_base_offset: int
    first_offset: int
    last_offset: int
    leader_epoch: int
    max_timestamp_ms: int
    is_control: bool
    content: bytes


def batches_of(directory: Path) -> list[Batch]:
    """Every batch of a partition directory, in file order."""
    found = []
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        scanner = scan_file(path, base_offset=int(path.stem))
        for columns in scanner:
            for row in range(len(columns)):
                position = int(columns.position[row])
                found.append(
                    Batch(
                        int(path.stem),
                        int(columns.base_offset[row]),
                        int(columns.last_offset[row]),
                        int(columns.leader_epoch[row]),
                        int(columns.max_timestamp_ms[row]),
                        bool(columns.attributes[row] & BatchFlag.CONTROL) and bool(columns.magic[row] >= 2),
                        data[position : position + int(columns.size_bytes[row])],
                    )
                )
        scanner.require_exact()
    return found


def records_of(directory: Path) -> list[Record]:
    """Every record of a partition directory that is no marker."""
    return [record for batch in batches_of(directory) if not batch.is_control for record in read_records(batch.content)]


def files_of(directory: Path) -> dict[str, bytes]:
    """Name to content."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}
