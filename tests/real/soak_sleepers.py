"""Leaders that are put to sleep while an upload is on its way, so slowly that nobody need hurry to catch the moment."""

from __future__ import annotations

import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Producer

from sidecar.model import TopicPartition
from tests.real.daemon import Daemon
from tests.real.leaders import leader_of, move_leaders, wait_in_sync
from tests.real.soak_equality import Unfinished, unfinished_attempts
from tests.real.topics import wait_until
from tests.servers.kafka import KafkaBroker
from tests.servers.process import ServerProcess
from tests.servers.toxiproxy import Proxy

SEGMENT_BYTES = 1 << 20
RATE_KB_PER_S = 8
"""A segment takes two minutes."""

_RECORD_BYTES = 16384
_BATCH_BYTES = 4 * _RECORD_BYTES


@dataclass
class Sleeper:
    """The first broker leads, and its sidecar reaches the store through a proxy of its own. `partition` has no other traffic."""

    brokers: Sequence[KafkaBroker]
    sidecar: Daemon
    state_dir: Path
    proxy: Proxy
    partition: TopicPartition
    dice: random.Random = field(default_factory=lambda: random.Random(0))

    @property
    def broker(self) -> KafkaBroker:
        return self.brokers[0]

    def roll_one(self) -> None:
        """Write a little more than fills a segment."""
        servers = ",".join(broker.bootstrap for broker in self.brokers)
        producer = Producer({"bootstrap.servers": servers, "batch.size": _BATCH_BYTES, "log_level": 0})
        for _ in range(SEGMENT_BYTES // _RECORD_BYTES + 2):
            producer.produce(
                self.partition.topic, self.dice.randbytes(_RECORD_BYTES), partition=self.partition.partition
            )
        assert producer.flush(60) == 0

    def uploads_in_flight(self) -> list[Unfinished]:
        """The attempts of the sidecar, once there is one; none of them is complete."""
        wait_until("an upload is on its way", lambda: bool(unfinished_attempts(self.state_dir)))
        attempts = unfinished_attempts(self.state_dir)
        assert all((attempt.is_uploaded, attempt.commit_number) == (False, None) for attempt in attempts)
        return attempts

    def depose(self, asleep: Sequence[ServerProcess]) -> None:
        """Put these to sleep, for longer than a session, until another broker leads."""
        for process in asleep:
            process.send_signal(signal.SIGSTOP)
        others = self.brokers[1:]
        if self.broker.process in asleep:
            nodes = {broker.node_id for broker in others}
            wait_until("another broker leads", lambda: leader_of(others[0], self.partition).leader_id in nodes)
        else:
            move_leaders(self.brokers, {self.partition: others[0].node_id})

    def wake(self, asleep: Sequence[ServerProcess]) -> None:
        """Let them go on, and wait until all replicas are in sync."""
        for process in asleep:
            process.send_signal(signal.SIGCONT)
        wait_in_sync(self.brokers, self.partition.topic)
