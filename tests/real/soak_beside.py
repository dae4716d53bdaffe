"""Sidecars beside brokers of a soak: how they are set, what is in their archive, and what they said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from sidecar.archive.state import PartitionState, empty_state
from sidecar.clock import SystemClock
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.lineages import find_all_lineages
from sidecar.model import TopicPartition
from sidecar.ports import ObjectStore
from tests.real.daemon import Daemon
from tests.real.leaders import leaders
from tests.real.product import s3_settings
from tests.servers.kafka import KafkaBroker
from tests.servers.versitygw import VersityGateway


def archive_settings(gateway: VersityGateway, endpoint: str | None = None) -> dict[str, str]:
    """Of the one archive in a gateway's bucket."""
    return {**s3_settings(gateway, endpoint), "store.url": f"s3://{gateway.bucket}/archive"}


def sidecar_settings(
    broker: KafkaBroker, bootstrap: str, gateway: VersityGateway, endpoint: str, topics: str
) -> dict[str, str]:
    """Of a `run` beside this broker, which archives the topics of these names to the gateway's bucket."""
    return {
        **archive_settings(gateway, endpoint),
        "broker.log_dirs": str(broker.log_dirs[0]),
        "broker.assume_leader": "false",
        "broker.connection.bootstrap_servers": bootstrap,
        "broker.connection.request_timeout_s": "3",
        "topics.include": topics,
        "run.scan_interval_s": "1",
    }


class Archived:
    """The states of an archive's partitions, read on from look to look."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._logs: dict[TopicPartition, CommitLog] = {}
        self.states: dict[TopicPartition, PartitionState] = {}

    def look(self) -> Mapping[TopicPartition, PartitionState]:
        """The states now."""
        for lineage in find_all_lineages(self._store):
            partition = lineage.topic_partition
            log = self._logs.setdefault(partition, CommitLog(self._store, lineage.root, SystemClock()))
            self.states[partition] = log.refresh(self.states.get(partition) or empty_state(lineage))
        return self.states

    def end(self, partition: TopicPartition) -> int:
        """Exclusive end of what is archived now, 0 if nothing is."""
        state = self.look().get(partition)
        return 0 if state is None else state.end_offset or 0


def active_bases(brokers: Sequence[KafkaBroker], topics: Sequence[str]) -> dict[TopicPartition, tuple[Path, int]]:
    """By partition, its directory at its leader and the base of the active segment there: all below it has rolled."""
    asked = next(broker for broker in brokers if broker.process.alive)
    nodes = {broker.node_id: broker for broker in brokers}
    found: dict[TopicPartition, tuple[Path, int]] = {}
    for partition, leader in leaders(asked, *topics).items():
        directory = nodes[leader.leader_id].log_dirs[0] / str(partition)
        found[partition] = directory, max(int(path.stem) for path in directory.glob("*.log"))
    return found


FATAL_EVENTS = {
    "transfer_crashed",
    "offsets_lost",
    "producer_snapshot_mismatch",
    "cycle_failed",
}
"""Log events that none of these happenings may cause."""


def reported(sidecars: Sequence[Daemon]) -> Counter[str]:
    """What the sidecars logged in all of their runs, as counts; raises AssertionError for what they should never say."""
    counts: Counter[str] = Counter()
    for sidecar in sidecars:
        text = sidecar.process.log_path.read_text()
        assert "Traceback" not in text, text[text.index("Traceback") - 2000 :][:6000]
        for name in FATAL_EVENTS:
            assert f'"{name}"' not in text, next(line for line in text.splitlines() if f'"{name}"' in line)
        counts["fenced"] += text.count("leadership changed during the upload") + text.count("another broker leads")
        counts["overtaken"] += text.count("another writer made commit")
        counts["segments_committed"] += text.count('"segment_committed"')
        counts["partitions_stopped"] += text.count('"partition_stopped"')
    return counts
