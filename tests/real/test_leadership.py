"""Three brokers, three sidecars, one archive: leaders move, brokers, sidecars and the store go away, and one sleeps amid an upload.

`make soak` runs the first test for longer: SOAK_SECONDS (at least), SOAK_ROUNDS and SOAK_SEED say how.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sidecar.model import ObjectKey, TopicPartition
from tests.real.daemon import Daemon, eventually, now_s
from tests.real.leaders import CLUSTER_PROPERTIES, SEGMENT_MS, create_replicated, leader_of, move_leaders
from tests.real.product import store_of
from tests.real.soak import Fire
from tests.real.soak_beside import Archived, archive_settings, reported, sidecar_settings
from tests.real.soak_equality import (
    Unfinished,
    assert_no_commit_of_a_deposed_leader,
    assert_nothing_uncounted,
    assert_whole,
    commits_of,
    unfinished_attempts,
    wait_until_archived,
)
from tests.real.soak_producers import PARTITIONS, LiveProducers
from tests.real.soak_sleepers import RATE_KB_PER_S, Sleeper
from tests.real.soak_sleepers import SEGMENT_BYTES as SLEEPERS_SEGMENT_BYTES
from tests.real.topics import wait_until
from tests.servers.fault_proxy import FaultProxy, fault_proxy
from tests.servers.kafka_cluster import KafkaCluster
from tests.servers.toxiproxy import Proxy, Toxiproxy
from tests.servers.versitygw import VersityGateway

SOAK_SECONDS = float(os.environ.get("SOAK_SECONDS", "0"))
SOAK_ROUNDS = int(os.environ.get("SOAK_ROUNDS", "1"))
SOAK_SEED = int(os.environ.get("SOAK_SEED", "20261121"))
IS_LONG = SOAK_SECONDS > 0

pytestmark = [pytest.mark.real, pytest.mark.timeout(600 + 4 * SOAK_SECONDS)]

SEGMENT_BYTES = 49152


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with KafkaCluster("3.9.1", tmp_path_factory.mktemp("cluster"), properties=CLUSTER_PROPERTIES) as started:
        yield started


@pytest.fixture(scope="module")
def toxiproxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toxiproxy]:
    with Toxiproxy(tmp_path_factory.mktemp("toxiproxy")) as started:
        yield started


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[VersityGateway]:
    with VersityGateway(tmp_path / "versitygw", options=["--quiet"]) as started:
        yield started


def test_one_archive_whatever_happens_to_brokers_sidecars_and_the_store(
    cluster: KafkaCluster, toxiproxy: Toxiproxy, gateway: VersityGateway, tmp_path: Path
) -> None:
    topics = list(PARTITIONS)
    for topic, partition_count in PARTITIONS.items():
        create_replicated(
            cluster.brokers, topic, partition_count, SEGMENT_BYTES, SEGMENT_MS if IS_LONG else 2 * SEGMENT_MS
        )
    proxy = toxiproxy.proxy("store", gateway.port)
    directories = [tmp_path / f"sidecar-{broker.node_id}" for broker in cluster.brokers]
    started_s = now_s()
    with ExitStack() as resources:
        sidecars = [
            resources.enter_context(
                Daemon(
                    directory, sidecar_settings(broker, cluster.bootstrap, gateway, proxy.endpoint, ",".join(topics))
                )
            )
            for broker, directory in zip(cluster.brokers, directories, strict=True)
        ]
        producers = resources.enter_context(LiveProducers(cluster.bootstrap, SOAK_SEED, 0.2 if IS_LONG else 0.5))
        store = resources.enter_context(store_of(archive_settings(gateway)))
        archived = Archived(store)
        wait_until_archived(archived, sum(PARTITIONS.values()))
        outage_s, calm_s = (60, 8) if IS_LONG else (3, 1)
        fire = Fire(cluster.brokers, sidecars, proxy, topics, random.Random(SOAK_SEED), outage_s, calm_s)
        fire.burn(SOAK_ROUNDS, SOAK_SECONDS)
        producers.stop()
        beside = [(sidecar, directory / "state") for sidecar, directory in zip(sidecars, directories, strict=True)]
        counts = assert_whole(cluster.brokers, beside, store, archived, topics, tmp_path / "copies")
    for more in (fire.counts, producers.counts):
        counts.update(more)
    print(f"seed {SOAK_SEED}, {now_s() - started_s:.0f} s: {dict(sorted(counts.items()))}")
    assert producers.counts["transactions_committed"] > 0
    assert producers.counts["transactions_aborted"] > 0
    assert counts["segments"] > 20
    assert fire.counts["sidecars_killed"] > 1


@dataclass(frozen=True)
class SleepyArchive:
    """Three sidecars on one archive. The first reaches it through `proxy`, and behind that through `holding`."""

    gateway: VersityGateway
    proxy: Proxy
    holding: FaultProxy
    sidecars: list[Daemon]
    state_dirs: list[Path]

    def is_idle(self) -> bool:
        return not any(unfinished_attempts(state_dir) for state_dir in self.state_dirs)


@pytest.fixture(scope="module")
def sleepy(
    cluster: KafkaCluster, toxiproxy: Toxiproxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SleepyArchive]:
    directory = tmp_path_factory.mktemp("sleepers")
    with (
        VersityGateway(directory / "versitygw", options=["--quiet"]) as gateway,
        fault_proxy(gateway.endpoint) as holding,
        ExitStack() as resources,
    ):
        proxy = toxiproxy.proxy("sleeper", holding.port)
        endpoints = [proxy.endpoint, gateway.endpoint, gateway.endpoint]
        directories = [directory / f"sidecar-{broker.node_id}" for broker in cluster.brokers]
        sidecars = [
            resources.enter_context(
                Daemon(place, sidecar_settings(broker, cluster.bootstrap, gateway, endpoint, "asleep-.*"))
            )
            for broker, place, endpoint in zip(cluster.brokers, directories, endpoints, strict=True)
        ]
        yield SleepyArchive(gateway, proxy, holding, sidecars, [place / "state" for place in directories])
        assert [sidecar.process.stop() for sidecar in sidecars] == [0, 0, 0]


@contextmanager
def led_by_the_first(
    cluster: KafkaCluster, sleepy: SleepyArchive, topic: str
) -> Iterator[tuple[Sleeper, Archived, Callable[[list[Unfinished], str], None]]]:
    """A partition with one archived segment; the archive; and what must be true in the end of attempts, and of the log."""
    partition = TopicPartition(topic, 0)
    create_replicated(cluster.brokers, topic, 1, SLEEPERS_SEGMENT_BYTES, segment_ms=3_600_000)
    first = cluster.brokers[0].node_id
    if leader_of(cluster.brokers[1], partition).leader_id != first:
        # Whom the test before woke may not be back in the cluster yet: another is made leader then.
        move_leaders(cluster.brokers, {partition: first})
    # A sidecar that is still starting has no journal that could be asked whether it is idle.
    eventually(lambda: all(str(partition) in sidecar.partitions() for sidecar in sleepy.sidecars))
    with store_of(archive_settings(sleepy.gateway)) as store:
        archived = Archived(store)
        sleeper = Sleeper(cluster.brokers, sleepy.sidecars[0], sleepy.state_dirs[0], sleepy.proxy, partition)
        sleeper.roll_one()
        wait_until("the first segment is archived", lambda: archived.end(partition) > 0 and sleepy.is_idle())
        epoch = leader_of(cluster.brokers[1], partition).leader_epoch

        def never_committed(attempts: list[Unfinished], refusal: str) -> None:
            end = archived.end(partition)
            sleeper.roll_one()
            wait_until("the new leader goes on", lambda: archived.end(partition) > end and sleepy.is_idle())
            archived.look()
            state = archived.states[partition]
            reported([sleeper.sidecar])
            assert_no_commit_of_a_deposed_leader(store, ObjectKey(state.lineage.root))
            commits = list(commits_of(store, ObjectKey(state.lineage.root)))
            assert {commit.writer.leader_epoch for commit in commits if commit.writer.broker_id == 0} == {epoch}
            assert not {segment.segment_id for segment in state.segments} & {attempt.segment_id for attempt in attempts}
            assert assert_nothing_uncounted(store, [state], sleepy.state_dirs) == 0
            stopped = [event["error"] for event in sleeper.sidecar.events() if event["event"] == "partition_stopped"]
            assert [error for error in stopped if topic in error and refusal in error], stopped

        yield sleeper, archived, never_committed


@pytest.mark.parametrize(
    "who", [pytest.param("broker", marks=pytest.mark.apart), pytest.param("sidecar", marks=pytest.mark.apart), "both"]
)
def test_a_leader_that_slept_amid_an_upload_commits_nothing(
    cluster: KafkaCluster, sleepy: SleepyArchive, who: str
) -> None:
    with led_by_the_first(cluster, sleepy, f"asleep-{who}") as (sleeper, archived, never_committed):
        before = archived.end(sleeper.partition)
        toxic = sleepy.proxy.add_toxic("bandwidth", stream="upstream", rate=RATE_KB_PER_S)
        sleeper.roll_one()
        attempts = sleeper.uploads_in_flight()
        assert attempts[0].base_offset == before
        asleep = {"broker": [sleeper.broker.process], "sidecar": [sleeper.sidecar.process]}
        processes = asleep.get(who) or [*asleep["broker"], *asleep["sidecar"]]
        sleeper.depose(processes)
        wait_until("the new leader's sidecar has archived it", lambda: archived.end(sleeper.partition) > before)
        # It was in flight when they fell asleep, and is still when they wake up.
        assert unfinished_attempts(sleeper.state_dir) == attempts
        sleepy.proxy.remove_toxic(toxic)
        sleeper.wake(processes)
        wait_until("the old leader's sidecar has given up", lambda: not unfinished_attempts(sleeper.state_dir))
        never_committed(attempts, "leadership changed during the upload")


@pytest.mark.apart
def test_a_commit_that_was_on_its_way_when_its_leader_fell_asleep_arrives_in_vain(
    cluster: KafkaCluster, sleepy: SleepyArchive
) -> None:
    with led_by_the_first(cluster, sleepy, "asleep-committing") as (sleeper, archived, never_committed):
        before = archived.end(sleeper.partition)
        sleepy.holding.hold("PUT", "/commits/")
        sleeper.roll_one()
        wait_until("the commit is on its way", sleepy.holding.held.is_set)
        attempts = unfinished_attempts(sleeper.state_dir)
        assert [attempt.is_uploaded and attempt.commit_number is not None for attempt in attempts] == [True]
        processes = [sleeper.broker.process, sleeper.sidecar.process]
        sleeper.depose(processes)
        wait_until("the new leader's sidecar has archived it", lambda: archived.end(sleeper.partition) > before)
        # Leadership was confirmed before they fell asleep: the store alone stands between this commit and the archive.
        sleepy.holding.release()
        sleeper.wake(processes)
        wait_until("the old leader's sidecar has given up", lambda: not unfinished_attempts(sleeper.state_dir))
        never_committed(attempts, "another broker leads")
