"""What happens to a cluster and to the sidecars beside it, by a seed: leaders move, brokers, sidecars and the store go away."""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Event

from tests.real.daemon import Daemon, now_s
from tests.real.leaders import leaders, move_leaders, wait_in_sync
from tests.servers.kafka import KafkaBroker
from tests.servers.toxiproxy import Proxy

SESSION_S = 3.0
"""After so long a broker that does not answer is deposed: see `leaders.CLUSTER_PROPERTIES`."""


@dataclass
class Fire:
    """Brokers, their sidecars, the way to the store, and the dice. `counts`: what happened to them.

    `outage_s`: how long the store is away each time. `calm_s`: the longest pause between two happenings.
    """

    brokers: Sequence[KafkaBroker]
    sidecars: Sequence[Daemon]
    store_proxy: Proxy
    topics: Sequence[str]
    dice: random.Random
    outage_s: float
    calm_s: float
    counts: Counter[str] = field(default_factory=Counter)

    def happenings(self) -> list[Callable[[], None]]:
        """One of each, and leaders move twice, in an order of the dice."""
        found = [self.move, self.bounce, self.kill_broker, self.sleep, self.store_outage, self.move]
        self.dice.shuffle(found)
        return found

    def burn(self, rounds: int, at_least_s: float) -> None:
        """Let everything happen, so many times and for so long, while sidecars are killed at moments of their own."""
        ends_s = now_s() + at_least_s
        done = 0
        with self._killing_sidecars():
            while done < rounds or now_s() < ends_s:
                for happen in self.happenings():
                    happen()
                    self._wait(self.dice.uniform(0, self.calm_s))
                done += 1
        self.counts["rounds"] = done

    def move(self) -> None:
        """About half of the partitions get another leader, by election."""
        led = leaders(self.brokers[0], *self.topics)
        chosen = [partition for partition in sorted(led, key=str) if self.dice.random() < 0.5]
        targets = {partition: self.dice.randrange(len(self.brokers)) for partition in chosen}
        moved = {partition: target for partition, target in targets.items() if led[partition].leader_id != target}
        if moved:
            move_leaders(self.brokers, moved)
        self.counts["leaders_moved"] += len(moved)

    def bounce(self) -> None:
        """A broker is stopped cleanly, and comes back."""
        self._without(self.dice.choice(self.brokers), lambda broker: broker.stop(), lambda broker: broker.start())
        self.counts["brokers_bounced"] += 1

    def kill_broker(self) -> None:
        """kill -9 of a broker, which comes back after others were elected, or before."""
        self._without(self.dice.choice(self.brokers), lambda broker: broker.kill(), lambda broker: broker.start())
        self.counts["brokers_killed"] += 1

    def sleep(self) -> None:
        """A broker sleeps for longer than its session, and wakes up deposed."""
        self._without(
            self.dice.choice(self.brokers),
            lambda broker: broker.process.send_signal(signal.SIGSTOP),
            lambda broker: broker.process.send_signal(signal.SIGCONT),
            at_least_s=SESSION_S + 2,
        )
        self.counts["brokers_put_to_sleep"] += 1

    def store_outage(self) -> None:
        """Nobody reaches the store; connections are cut."""
        self.store_proxy.set_enabled(False)
        self._wait(self.outage_s)
        self.store_proxy.set_enabled(True)
        self.counts["store_outages"] += 1

    def _without(
        self,
        broker: KafkaBroker,
        leave: Callable[[KafkaBroker], None],
        come_back: Callable[[KafkaBroker], None],
        at_least_s: float = 0.0,
    ) -> None:
        leave(broker)
        self._wait(at_least_s + self.dice.uniform(0, SESSION_S))
        come_back(broker)
        wait_in_sync(self.brokers, *self.topics)

    @contextmanager
    def _killing_sidecars(self) -> Iterator[None]:
        """kill -9 of one sidecar after another, at random moments; all of them run afterwards."""
        over, dice = Event(), random.Random(self.dice.random())

        def kill() -> None:
            while not over.wait(dice.uniform(2, 12)):
                sidecar = dice.choice(self.sidecars)
                sidecar.process.kill()
                self.counts["sidecars_killed"] += 1
                over.wait(dice.choice((0.0, dice.uniform(0, self.calm_s))))
                sidecar.start()

        with ThreadPoolExecutor(1) as pool, ExitStack() as resources:
            killing = pool.submit(kill)
            resources.callback(killing.result)
            resources.callback(over.set)
            yield

    @staticmethod
    def _wait(seconds: float) -> None:
        Event().wait(seconds)
