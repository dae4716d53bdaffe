"""What the broker reports against what lies in the directories that this process sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from sidecar.broker import live_facts
from sidecar.broker import unseen_replicas as module
from sidecar.broker.client import FIRST_SERVER
from sidecar.broker.connection import BrokerConnection
from sidecar.broker.live_facts import LOG_DIRS_MAX_AGE_S, LiveBrokerFacts
from sidecar.broker.unseen_replicas import unseen_replicas
from sidecar.config import Settings
from sidecar.config.broker_connection import BrokerConnectionSettings
from sidecar.discovery.partition_directory import read_partition_directory
from sidecar.doctor.doctor import doctor
from sidecar.doctor.findings import Area
from sidecar.errors import BrokerUnavailable, LogDirsUnformatted, SettingsError
from sidecar.model import TopicPartition
from sidecar.partition.wait_reason import WrongCluster
from sidecar.runner.configured_facts import open_facts
from tests.doctor.examined import found_in, troubles
from tests.fakes.manual_clock import ManualClock
from tests.servers.fake_kafka import NODE_ID, FakeKafka

DATA = "/var/lib/kafka/data"
CHECK = "has no replica that is not seen here"
META = "version=1\ncluster.id=fake\nnode.id=1\n"


@pytest.fixture
def kafka() -> Iterator[FakeKafka]:
    with FakeKafka(topics=2, partitions=2) as found:
        yield found


@pytest.fixture
def connection(kafka: FakeKafka) -> Iterator[BrokerConnection]:
    found = BrokerConnection(BrokerConnectionSettings(bootstrap_servers=(kafka.server,), request_timeout_s=60))
    yield found
    found.close()


def log_dir_with(path: Path, kafka: FakeKafka, *, without: int = 0) -> Path:
    """A log dir with all of the broker's partitions but the last ones."""
    path.mkdir()
    (path / "meta.properties").write_text(META)
    names = [f"{topic}-{number}" for topic, partitions in kafka.topics.items() for number in range(partitions)]
    for name in names[: len(names) - without]:
        (path / name).mkdir()
    return path


def settings_for(tmp_path: Path, kafka: FakeKafka, log_dir: Path) -> Settings:
    return Settings.model_validate(
        {
            "store": {"url": str(tmp_path / "archive")},
            "broker": {"log_dirs": [log_dir], "connection": {"bootstrap_servers": [kafka.server]}},
        }
    )


def everything(_topic: str) -> bool:
    return True


def test_a_volume_that_is_mounted_elsewhere_is_the_same_by_what_lies_in_it(
    tmp_path: Path, kafka: FakeKafka, connection: BrokerConnection
) -> None:
    log_dir = log_dir_with(tmp_path / "elsewhere", kafka)
    # What is deleted, and what another broker left, is not the broker's any more.
    (log_dir / f"orders-0.{'0' * 32}-delete").mkdir()
    (log_dir / "stray-0").mkdir()
    assert unseen_replicas(connection, NODE_ID, [log_dir], everything) == ""


@pytest.mark.parametrize("is_there", [True, False])
def test_an_empty_mount_is_reported_with_both_directories(
    is_there: bool, tmp_path: Path, kafka: FakeKafka, connection: BrokerConnection
) -> None:
    log_dir = tmp_path / "logs"
    if is_there:
        log_dir.mkdir()
    first = min(kafka.topics)
    lacking = f"cannot be found in {log_dir} as this process sees it, such as {first}-0"
    expected = f"4 of 4 replicas that the broker reports in {DATA} {lacking}"
    assert unseen_replicas(connection, NODE_ID, [log_dir], everything) == expected
    assert unseen_replicas(connection, FIRST_SERVER, [log_dir], everything) == expected
    assert unseen_replicas(connection, NODE_ID, [log_dir], {first}.__contains__).startswith("2 of 4 replicas")
    assert unseen_replicas(connection, NODE_ID, [log_dir], lambda _: False) == ""


def test_a_disk_of_several_that_is_missing_here_is_reported(
    tmp_path: Path, kafka: FakeKafka, connection: BrokerConnection
) -> None:
    log_dir = log_dir_with(tmp_path / "logs", kafka)
    kafka.log_dirs = {DATA: kafka.topics, "/disk2": {"payments": 3}}
    found = unseen_replicas(connection, NODE_ID, [log_dir], everything)
    assert found.startswith("3 of 3 replicas that the broker reports in /disk2 cannot be found in")
    assert DATA not in found


def test_what_is_deleted_between_answer_and_listing_is_not_reported(
    tmp_path: Path, kafka: FakeKafka, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = log_dir_with(tmp_path / "logs", kafka, without=2)
    listed = module._live_replicas

    def deleted_meanwhile(log_dirs: list[Path]) -> frozenset[TopicPartition]:
        gone = max(kafka.topics)
        kafka.log_dirs = {DATA: {topic: number for topic, number in kafka.topics.items() if topic != gone}}
        return listed(log_dirs)

    monkeypatch.setattr(module, "_live_replicas", deleted_meanwhile)
    assert unseen_replicas(connection, NODE_ID, [log_dir], everything) == ""


def test_a_broker_that_does_not_say_proves_nothing(
    tmp_path: Path, kafka: FakeKafka, connection: BrokerConnection
) -> None:
    kafka.log_dirs = {}
    assert unseen_replicas(connection, NODE_ID, [tmp_path], everything) == ""
    settings = settings_for(tmp_path, kafka, log_dir_with(tmp_path / "logs", kafka))
    report = doctor(settings, areas=[Area.BROKER])
    assert found_in(report, CHECK).outcome.verdict == "not_checked"
    assert CHECK not in troubles(report)


def test_run_warns_once_and_again_after_it_was_mended(tmp_path: Path, kafka: FakeKafka) -> None:
    log_dir = log_dir_with(tmp_path / "logs", kafka, without=1)
    missing = f"{max(kafka.topics)}-1"
    clock = ManualClock()
    with structlog.testing.capture_logs() as logs, open_facts(settings_for(tmp_path, kafka, log_dir), clock) as facts:
        assert isinstance(facts, LiveBrokerFacts)
        for _ in range(3):
            facts.refresh()
            assert f"such as {missing}" in facts.state().unseen_replicas
            clock.sleep_s(LOG_DIRS_MAX_AGE_S)
        assert len([entry for entry in logs if entry["event"] == "replicas_not_seen"]) == 1
        (log_dir / missing).mkdir()
        facts.refresh()
        assert facts.state().unseen_replicas == ""
        (log_dir / missing).rmdir()
        facts.refresh()
        assert facts.state().unseen_replicas == ""  # It was compared a moment ago.
        clock.sleep_s(LOG_DIRS_MAX_AGE_S)
        facts.refresh()
    reported = [entry for entry in logs if entry["event"] == "replicas_not_seen"]
    assert [entry["log_level"] for entry in reported] == ["warning"] * 2
    assert "VOLUME" in reported[0]["remedy"]


def test_a_comparison_that_fails_takes_no_finding_back(
    tmp_path: Path, kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir, clock = log_dir_with(tmp_path / "logs", kafka, without=1), ManualClock()

    def fails(*_: object) -> str:
        raise BrokerUnavailable("no answer")

    with structlog.testing.capture_logs() as logs, open_facts(settings_for(tmp_path, kafka, log_dir), clock) as facts:
        facts.refresh()
        found = facts.state().unseen_replicas
        with monkeypatch.context() as patch:
            patch.setattr(live_facts, "unseen_replicas", fails)
            clock.sleep_s(LOG_DIRS_MAX_AGE_S)
            facts.refresh()
            assert facts.state().unseen_replicas == found != ""
        clock.sleep_s(LOG_DIRS_MAX_AGE_S)
        facts.refresh()
    assert [entry["event"] for entry in logs].count("replicas_not_seen") == 1


def test_log_dirs_that_seem_unformatted_are_distinguished_from_another_volume(tmp_path: Path, kafka: FakeKafka) -> None:
    empty = tmp_path / "logs"
    empty.mkdir()
    settings = settings_for(tmp_path, kafka, empty)
    with (
        pytest.raises(LogDirsUnformatted, match="4 of 4 replicas") as raised,
        open_facts(settings, ManualClock()),
    ):
        pass
    assert "mount the volume" in str(raised.value)
    kafka.log_dirs = {DATA: {}}
    with pytest.raises(LogDirsUnformatted) as raised, open_facts(settings, ManualClock()):
        pass
    assert "reports" not in str(raised.value)


def test_log_dirs_that_another_broker_has_taken_are_not_archived_as_the_one_before(
    tmp_path: Path, kafka: FakeKafka
) -> None:
    """What the broker leads that they belonged to is not in them, or only as a follower has it."""
    log_dir, topic = log_dir_with(tmp_path / "logs", kafka), min(kafka.topics)
    directory = log_dir / f"{topic}-0"
    files = read_partition_directory(TopicPartition(topic, 0), log_dir, directory)
    with open_facts(settings_for(tmp_path, kafka, log_dir), ManualClock()) as facts:
        facts.refresh()
        assert facts.partition(files).leads
        for other in (META.replace("node.id=1", "node.id=4"), META.replace("cluster.id=fake", "cluster.id=other")):
            (log_dir / "meta.properties").write_text(other)
            with pytest.raises(SettingsError, match="restart the sidecar"):
                facts.refresh()
            assert isinstance(facts.partition(files).reason, WrongCluster)
        for same in ("", META):  # Not mounted for a while.
            (log_dir / "meta.properties").write_text(same) if same else (log_dir / "meta.properties").unlink()
            facts.refresh()
            assert facts.partition(files).reason is None


def test_log_dirs_that_another_broker_takes_before_the_first_refresh_are_refused(
    tmp_path: Path, kafka: FakeKafka
) -> None:
    """Everything is asked under the broker id of the start."""
    log_dir = log_dir_with(tmp_path / "logs", kafka)
    with open_facts(settings_for(tmp_path, kafka, log_dir), ManualClock()) as facts:
        (log_dir / "meta.properties").write_text(META.replace("node.id=1", "node.id=4"))
        with pytest.raises(SettingsError, match="belonged to broker 1 of cluster fake when this process started"):
            facts.refresh()


def test_doctor_fails_with_advice(tmp_path: Path, kafka: FakeKafka) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    unknown = troubles(doctor(settings_for(tmp_path, kafka, empty), areas=[Area.BROKER]))
    assert "4 of 4 replicas" in unknown["responds as the local broker"]
    log_dir = log_dir_with(tmp_path / "logs", kafka)
    settings = settings_for(tmp_path, kafka, log_dir)
    whole = doctor(settings, areas=[Area.BROKER])
    assert found_in(whole, CHECK).outcome.detail == f"4 replicas in {DATA} of the broker"
    (log_dir / f"{max(kafka.topics)}-1").rmdir()
    report = doctor(settings, areas=[Area.BROKER])
    assert "1 of 4 replicas" in troubles(report)[CHECK]
    assert "mount the volume" in found_in(report, CHECK).outcome.advice
    assert report.exit_code == 2
