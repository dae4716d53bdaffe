"""Patterns that match no topic of the cluster are reported; a broker without a replica of a chosen topic is none the worse."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.broker.files import FileBrokerFacts
from sidecar.config import Settings, load_settings
from sidecar.errors import BrokerUnavailable, SettingsError
from sidecar.runner.backfill import _require_choice
from sidecar.runner.topic_choice import NothingChosen, nothing_chosen
from tests.runner.rig import copy_partitions
from tests.runner.test_asking_the_broker import Leadership


def settings_with(log_dir: Path, *include: str) -> Settings:
    flags = {
        "store.url": "memory://none",
        "broker.log_dirs": [log_dir],
        "topics.include": list(include),
    }
    return load_settings(flags=flags).settings


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return copy_partitions(tmp_path, "orders-0")


def chosen(log_dir: Path, include: str, in_cluster: frozenset[str] | None) -> NothingChosen | None:
    facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True), in_cluster=in_cluster)
    return nothing_chosen(settings_with(log_dir, include), facts)


def test_only_patterns_that_match_nothing_in_the_cluster_are_a_slip(log_dir: Path) -> None:
    assert chosen(log_dir, "orders", frozenset({"orders"})) is None
    elsewhere = chosen(log_dir, "payments", frozenset({"orders", "payments"}))
    assert elsewhere == NothingChosen("this broker has no replica of a selected topic: nothing to archive", False)
    for in_cluster in (frozenset({"orders", "payment"}), frozenset({"__consumer_offsets"}), frozenset[str]()):
        slip = chosen(log_dir, "payments", in_cluster)
        assert slip is not None
        assert slip.is_slip
        assert "no topic matches; there are: orders" in slip.reason
        assert "correct topics.include" in slip.reason
    unknown = chosen(log_dir, "payments", None)
    assert unknown is not None
    assert not unknown.is_slip
    assert "no topic matches; there are: orders" in unknown.reason


def test_a_cluster_that_does_not_answer_makes_no_slip_of_it(log_dir: Path) -> None:
    class Away(FileBrokerFacts):
        def topics(self) -> None:
            raise BrokerUnavailable("127.0.0.1:9092: no answer")

    found = nothing_chosen(settings_with(log_dir, "payments"), Away([log_dir]))
    assert found is not None
    assert not found.is_slip
    assert "127.0.0.1:9092: no answer" in found.reason


def test_a_back_fill_of_a_broker_without_a_replica_ends_well_and_that_of_a_slip_does_not(log_dir: Path) -> None:
    settings, files = settings_with(log_dir, "payments"), FileBrokerFacts([log_dir], assume_leader=True)
    with capture_logs() as logs:
        _require_choice(settings, Leadership(files, in_cluster=frozenset({"orders", "payments"})), True)
    assert [log["event"] for log in logs] == ["no_topic_selected"]
    with pytest.raises(SettingsError, match="no topic matches; there are: orders"):
        _require_choice(settings, Leadership(files, in_cluster=frozenset({"orders"})), True)
