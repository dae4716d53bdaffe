"""A log dir that cannot be listed for a while: nothing says that its partitions are gone, so nothing of them is let go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from sidecar.broker.files import FileBrokerFacts
from sidecar.http.pages import status_json
from tests.retention.pinned_rig import Outage, after_an_outage, held_names, open_deleted
from tests.runner.rig import (
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    rolled_ranges,
    status_of,
    tools_for,
)
from tests.runner.test_asking_the_broker import Leadership, rounds_of


def test_what_is_held_outlives_a_listing_that_failed(tmp_path: Path) -> None:
    with after_an_outage(tmp_path) as (context, rounds, outage, directory):
        log_dir, away = directory.parent, tmp_path / "away"
        outage.left = 0
        rounds.run_once()
        spans = rolled_ranges(log_dir, "orders-0")
        remove_offsets(directory, lambda offset: offset >= spans[-1][1])
        rounds.run_once()
        held = held_names(context)
        assert held == [base_offset for base_offset, _ in spans]
        log_dir.rename(away)
        for _ in range(2):
            (problem,) = rounds.run_once().problems
            assert problem.path == log_dir
            assert held_names(context) == held
            (row,) = status_json(status_of(context))["partitions"]
            assert (row["state"], row["segments_waiting"]) == ("at_risk", len(spans))
            assert str(log_dir) in row["reason"]
        away.rename(log_dir)
        outage.left = None
        assert rounds.run_once().errors == []
        assert (held_names(context), open_deleted(log_dir)) == ([], [])
    state = archived_states(outage.store)["orders-0"]
    assert (ranges(state), state.holes) == (spans, ())


def test_what_another_broker_leads_meanwhile_is_let_go(tmp_path: Path) -> None:
    log_dir, outage = copy_partitions(tmp_path, "orders-0"), Outage()
    with tools_for(log_dir, outage.store, tmp_path / "state") as context:
        facts = Leadership(FileBrokerFacts([log_dir], assume_leader=True), cluster_start_offset=0)
        context = replace(context, facts=facts)
        rounds = rounds_of(context, log_dir)
        rounds.run_once()
        assert held_names(context) != []
        log_dir.rename(tmp_path / "away")
        rounds.run_once()
        assert held_names(context) != []
        facts.leads = False
        rounds.run_once()
        assert held_names(context) == []
        assert status_json(status_of(context))["partitions"] == []


def test_a_partition_that_is_gone_when_its_log_dir_can_be_listed_again_is_let_go(tmp_path: Path) -> None:
    with after_an_outage(tmp_path) as (context, rounds, outage, directory):
        log_dir, away = directory.parent, tmp_path / "away"
        outage.left = 0
        rounds.run_once()
        log_dir.rename(away)
        rounds.run_once()
        (away / "orders-0").rename(tmp_path / "orders-0")
        away.rename(log_dir)
        rounds.run_once()
        assert held_names(context) == []
        assert status_json(status_of(context))["partitions"] == []
