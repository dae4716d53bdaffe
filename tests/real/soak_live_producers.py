"""What a leader remembers of its producers, beside what we make of the bytes that it wrote and we archived."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from producer_state.replay import replay
from producer_state.snapshot import ProducerEntry
from producer_state.table import ProducerTable
from sidecar.broker.cluster_view import LiveProducer, ask_producers
from sidecar.broker.connection import BrokerConnection
from sidecar.config.broker_connection import BrokerConnectionSettings
from sidecar.logformat.batches import scan_bytes
from sidecar.model import TopicPartition
from tests.real.leaders import leaders
from tests.real.topics import wait_until
from tests.servers.kafka import KafkaBroker

Producers = Mapping[TopicPartition, set[LiveProducer]]


def remembered_at_rest(brokers: Sequence[KafkaBroker], topics: Sequence[str]) -> Producers | None:
    """As `remembered`, once no transaction is open: of one that was broken off the coordinator's time limit writes the end."""
    found: list[Producers | None] = []

    def is_at_rest() -> bool:
        found.append(remembered(brokers, topics))
        every = (producer for producers in (found[-1] or {}).values() for producer in producers)
        return all(producer.transaction_start_offset < 0 for producer in every)

    wait_until("no transaction is open", is_at_rest)
    return found[-1]


def remembered(brokers: Sequence[KafkaBroker], topics: Sequence[str]) -> Producers | None:
    """DescribeProducers of all partitions, each at its leader; None for brokers that do not know the request (2.7.2)."""
    found: dict[TopicPartition, set[LiveProducer]] = {}
    led = leaders(brokers[0], *topics)
    for broker in brokers:
        own = [partition for partition, leader in led.items() if leader.leader_id == broker.node_id]
        connection = BrokerConnection(
            BrokerConnectionSettings(bootstrap_servers=(broker.bootstrap,), request_timeout_s=60)
        )
        try:
            reported = ask_producers(connection, broker.node_id, own)
        finally:
            connection.close()
        if reported is None:
            return None
        found.update({partition: set(producers) for partition, producers in reported.values.items()})
    return found


def producers_behind(snapshot: bytes, archived_end: int, archived_bytes: int, directory: Path) -> set[LiveProducer]:
    """What the archive's last snapshot, and the batches behind it in the leader's log, lead to.

    Args:
        archived_end: exclusive.
        archived_bytes: how many of the log's bytes are archived.
    """
    rest = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))[archived_bytes:]
    table = ProducerTable.from_snapshot(archived_end, snapshot)
    scanner = scan_bytes(rest, base_offset=archived_end)
    for columns in scanner:
        table, _ = replay(table, columns.facts())
    scanner.require_exact()
    return {_live(entry) for entry in table.entries() if entry != ProducerEntry(entry.producer_id)}


def _live(entry: ProducerEntry) -> LiveProducer:
    first_offset = entry.current_txn_first_offset
    return LiveProducer(
        producer_id=entry.producer_id,
        producer_epoch=entry.producer_epoch,
        last_sequence=entry.last_sequence,
        last_timestamp_ms=entry.last_timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        transaction_start_offset=-1 if first_offset is None else first_offset,
    )
