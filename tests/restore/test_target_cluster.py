"""What a running broker of the target's cluster says, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.broker.connection import BrokerConnection
from sidecar.errors import LineageUnknown, SettingsError, SidecarError
from sidecar.restore.decisions import Decisions
from sidecar.restore.request import LeaderEpochMode, ProducerStateMode, TargetCluster, ask_cluster
from tests.golden import manifest
from tests.restore.archives import archived, golden_topic_id, other_log_dir, own_log_dir, restored
from tests.restore.test_refusals import OTHER_ID, new_topic

OWN_CLUSTER = str(manifest("4.3.0")["cluster_id"])
OWN_ID = str(golden_topic_id("orders"))


def cluster(cluster_id: str | None = OWN_CLUSTER, topic_id: str | None = OWN_ID, epoch: int = 9) -> TargetCluster:
    return TargetCluster("b2:9092", cluster_id, topic_id, {0: epoch, 1: epoch})


def decided(log_dir: Path, found: TargetCluster, **request: Any) -> Decisions:
    outcome = restored(archived(), log_dir, "orders", **{"topic_id": None, "cluster": found, **request})
    assert outcome.log is not None
    assert outcome.decisions is not None
    return outcome.decisions


def test_an_empty_directory_needs_no_flag_where_the_cluster_tells(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    found = decided(tmp_path / "own", cluster())
    assert (found.topic_id, found.leader_epochs, found.producer_state) == (
        OWN_ID,
        LeaderEpochMode.KEEP,
        ProducerStateMode.KEEP,
    )
    (tmp_path / "other").mkdir()
    found = decided(tmp_path / "other", cluster("3OtherClusterId0000000", OTHER_ID, 0))
    assert (found.topic_id, found.leader_epochs, found.producer_state) == (
        OTHER_ID,
        LeaderEpochMode.FLATTEN,
        ProducerStateMode.DROP,
    )


def test_a_cluster_without_topic_ids_gets_none(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path, "2.7.2")
    found = cluster(str(manifest("2.7.2")["cluster_id"]), None)
    outcome = restored(archived("2.7.2"), log_dir, "orders", "2.7.2", topic_id=None, cluster=found)
    assert outcome.decisions is not None
    assert outcome.decisions.topic_id is None
    assert not (log_dir / "orders-0" / "partition.metadata").exists()


def test_a_cluster_that_leads_under_a_lower_epoch_makes_epochs_flat(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    with pytest.raises(SettingsError, match="leader epoch in the cluster is 3, in the archive 4"):
        decided(log_dir, cluster(epoch=3), leader_epochs=LeaderEpochMode.KEEP)
    assert decided(log_dir, cluster(epoch=3)).leader_epochs is LeaderEpochMode.FLATTEN


@pytest.mark.parametrize(
    ("found", "error", "reported", "request_options"),
    [
        (cluster("3OtherClusterId0000000"), SettingsError, "correct --to or --bootstrap-server", {}),
        (cluster(topic_id=OTHER_ID), SettingsError, f"the topic has id {OTHER_ID}", {"topic_id": OWN_ID}),
        (TargetCluster("b2:9092", OWN_CLUSTER, OWN_ID, {}), SettingsError, "has only 0 partitions", {}),
    ],
)
def test_contradictions_are_refused(
    found: TargetCluster, error: type[SidecarError], reported: str, request_options: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(error, match=reported):
        decided(own_log_dir(tmp_path), found, **request_options)


def test_a_directory_of_a_topic_that_was_deleted_is_not_written_into(tmp_path: Path) -> None:
    log_dir = other_log_dir(tmp_path)
    new_topic(log_dir, "orders-0", OTHER_ID)
    with pytest.raises(LineageUnknown, match=rf"says topic id {OTHER_ID}, the cluster says {OWN_ID}.*was deleted"):
        decided(log_dir, cluster("3OtherClusterId0000000"))


class Answering(BrokerConnection):
    """A connection to nobody, with an answer to each request, in this order."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)

    def send(self, request: Any, node_id: int | None = None, *, spare: bool = False) -> Any:
        return self._answers.pop(0)

    @property
    def servers(self) -> str:
        return "b2:9092"


@pytest.fixture
def answer() -> Callable[[int], SimpleNamespace]:
    def made(error_code: int) -> SimpleNamespace:
        partition = SimpleNamespace(partition_index=0, leader_id=2, leader_epoch=7)
        topic = SimpleNamespace(name="orders", error_code=error_code, topic_id=None, partitions=[partition])
        return SimpleNamespace(cluster_id="c", brokers=[], topics=[topic])

    return made


def configs(error_code: int = 0, **values: str) -> SimpleNamespace:
    reported = [
        SimpleNamespace(name=name.replace("_", "."), value=text, config_source=5, is_sensitive=False)
        for name, text in values.items()
    ]
    return SimpleNamespace(results=[SimpleNamespace(error_code=error_code, resource_name="orders", configs=reported)])


def test_the_cluster_is_asked_for_the_topic(answer: Callable[[int], SimpleNamespace]) -> None:
    found = ask_cluster(Answering(answer(0), configs(retention_ms="604800000", cleanup_policy="delete")), "orders")
    assert (found.servers, found.cluster_id, found.topic_id, found.leader_epochs) == ("b2:9092", "c", None, {0: 7})
    assert (found.policy.retention_ms, found.policy.cleanup_policy) == (604_800_000, {"delete"})
    with pytest.raises(SettingsError, match=r"cannot describe topic orders \(.*create it there first"):
        ask_cluster(Answering(answer(3)), "orders")


def test_a_cluster_that_may_not_tell_the_topics_settings_says_which_right_is_missing(
    answer: Callable[[int], SimpleNamespace],
) -> None:
    policy = ask_cluster(Answering(answer(0), configs(29)), "orders").policy
    assert not policy.is_retention_known
    assert "DESCRIBE_CONFIGS" in str(policy.unanswered).upper().replace("DESCRIBECONFIGS", "DESCRIBE_CONFIGS")
