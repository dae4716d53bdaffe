"""`compact`'s flags over what the settings and the topic's own configs say: what counts, what is refused, what says why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sidecar.archive.actions import Clean
from sidecar.archive.keys import Lineage
from sidecar.archive.state import PartitionState, empty_state
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.command_rules import CommandRules, GivenRules, command_rules
from sidecar.config import CompactionSettings
from sidecar.errors import SettingsError
from sidecar.model import TopicPartition
from sidecar.topic_policy import TopicPolicy

OF_HDR = "compaction.topics, entry hdr"
HDR = {"pattern": "hdr", "strategy": "header", "header": "v"}
REPORTED = TopicPolicy(
    compaction_strategy="header",
    compaction_strategy_header="w",
    origins={"compaction_strategy": "topic", "compaction_strategy_header": "topic"},
)


def resolved(
    given: GivenRules, *entries: Any, reported: TopicPolicy | None = None, forecast: bool = False, **values: Any
) -> CommandRules:
    settings = CompactionSettings.model_validate({**values, "topics": entries})
    return command_rules(settings, "hdr", reported or TopicPolicy(), given, is_forecast=forecast)


@pytest.mark.parametrize(
    ("given", "entries", "reported", "in_use", "chosen_by"),
    [
        (GivenRules(), [], None, "offset", "default"),
        (GivenRules(), [HDR], None, "header 'v'", OF_HDR),
        (GivenRules(), ["hdr"], None, "offset", "default"),
        (GivenRules(Strategy.HEADER, "v"), ["hdr"], None, "header 'v'", "flag"),
        (GivenRules(), [], REPORTED, "header 'w'", "its config compaction.strategy (topic)"),
        (GivenRules(), [HDR], REPORTED, "header 'v'", OF_HDR),
        (GivenRules(), ["hdr"], REPORTED, "header 'w'", "compaction.topics, entry hdr (strategy: topic)"),
        (GivenRules(), [{"pattern": "hdr", "strategy": "header"}], REPORTED, "header 'w'", OF_HDR),
        (
            GivenRules(),
            [{"pattern": "hdr", "strategy": "timestamp"}],
            REPORTED,
            "timestamp",
            "compaction.topics, entry hdr",
        ),
        (GivenRules(Strategy.HEADER), [HDR], None, "header 'v'", OF_HDR),
        (GivenRules(None, " v "), [HDR], None, "header 'v'", OF_HDR),
        (GivenRules(Strategy.HEADER, "x"), [], None, "header 'x'", "flag"),
    ],
)
def test_what_counts_where_no_flag_contradicts(
    given: GivenRules, entries: list[Any], reported: TopicPolicy | None, in_use: str, chosen_by: str
) -> None:
    found = resolved(given, *entries, reported=reported)
    assert (str(found.in_use), found.chosen_by, found.contradictions) == (in_use, chosen_by, ())


@pytest.mark.parametrize(
    ("given", "entries", "reported", "in_use", "contradiction"),
    [
        (
            GivenRules(Strategy.TIMESTAMP),
            [HDR],
            None,
            "timestamp",
            "--strategy timestamp means strategy timestamp, but compaction.topics, entry hdr says header 'v'",
        ),
        (
            GivenRules(None, "w"),
            [HDR],
            None,
            "header 'w'",
            "--header 'w' means strategy header 'w', but compaction.topics, entry hdr says header 'v'",
        ),
        (
            GivenRules(Strategy.OFFSET),
            [],
            REPORTED,
            "offset",
            "--strategy offset means strategy offset, but its config compaction.strategy (topic) says header 'w'",
        ),
        (
            GivenRules(strict=True),
            [{**HDR, "strict": False}],
            None,
            "header 'v'",
            "--strict was given, but compaction.topics, entry hdr says strict false",
        ),
        (
            GivenRules(exact_keys=False),
            [{**HDR, "exact_keys": True}],
            None,
            "header 'v'",
            "--no-exact-keys was given, but compaction.topics, entry hdr says exact_keys true",
        ),
        (
            GivenRules(segment_bytes=1000),
            [{**HDR, "segment_bytes": 2000}],
            None,
            "header 'v'",
            "--segment-bytes 1000 was given, but compaction.topics, entry hdr says segment_bytes 2000",
        ),
    ],
)
def test_a_flag_that_contradicts_is_named_with_both_values(
    given: GivenRules, entries: list[Any], reported: TopicPolicy | None, in_use: str, contradiction: str
) -> None:
    found = resolved(given, *entries, reported=reported)
    assert (str(found.in_use), found.contradictions) == (in_use, (contradiction,))
    (objection,) = found.objections
    assert str(objection).startswith(f"topic hdr: {contradiction}. Nothing was compacted. ")
    assert resolved(given, *entries, reported=reported, forecast=True).contradictions == ()


def test_what_an_entry_leaves_open_no_flag_contradicts() -> None:
    given = GivenRules(strict=True, exact_keys=True, segment_bytes=1000, delete_retention_ms=7)
    found = resolved(given, HDR)
    assert found.contradictions == ()
    assert found.policy is not None
    policy = found.policy
    assert (policy.strict, policy.exact_keys, policy.segment_bytes, policy.delete_retention_ms) == (True, True, 1000, 7)
    of_section = resolved(GivenRules(segment_bytes=1000), HDR, segment_bytes=2000)
    assert of_section.contradictions == ("--segment-bytes 1000 was given, but compaction says segment_bytes 2000",)


def test_all_values_default_to_the_entry() -> None:
    entry = {**HDR, "strict": True, "exact_keys": True, "segment_bytes": 5000, "delete_retention_ms": 9}
    policy = resolved(GivenRules(), entry).policy
    assert policy is not None
    assert (policy.strict, policy.exact_keys, policy.segment_bytes, policy.delete_retention_ms) == (True, True, 5000, 9)


def test_the_entry_counts_although_compaction_is_switched_off() -> None:
    assert str(resolved(GivenRules(), HDR, enabled=False).in_use) == "header 'v'"


def test_a_header_without_the_strategy_is_refused_but_for_a_forecast() -> None:
    with pytest.raises(SettingsError, match="--header v is for --strategy header, not offset"):
        resolved(GivenRules(None, "v"))
    assert resolved(GivenRules(None, "v"), forecast=True).header == "v"
    assert resolved(GivenRules(), HDR, forecast=True).header == "v"


def test_a_strategy_that_this_release_does_not_know_leaves_the_topic_alone() -> None:
    reported = TopicPolicy(compaction_strategy="lexicographic")
    found = resolved(GivenRules(), reported=reported)
    assert found.policy is None
    assert "'lexicographic' is not a compaction strategy" in found.why_not
    assert str(resolved(GivenRules(), HDR, reported=reported).in_use) == "header 'v'"


def state_by(strategy: str, **parameters: str) -> PartitionState:
    state = empty_state(Lineage("cluster", TopicPartition("hdr", 3), "0"))
    return replace(state, clean=Clean(0, 10, strategy, {"now_ms": "5", **parameters}))


def test_without_a_declaration_the_newest_compaction_decides() -> None:
    by_header = state_by("header", header="v")
    assert resolved(GivenRules(Strategy.HEADER, "v")).change_of(by_header) is None
    for given, new in (
        (GivenRules(), "offset"),
        (GivenRules(Strategy.TIMESTAMP), "timestamp"),
        (GivenRules(Strategy.HEADER, "w"), "header 'w'"),
    ):
        change = resolved(given).change_of(by_header)
        assert change is not None
        assert f"hdr-3: its newest compaction used strategy header 'v', this one would use {new}" in str(change)
        assert "Give --strategy header --header v to keep the strategy, or --override" in str(change)
    assert resolved(GivenRules()).change_of(state_by("offset")) is None
    assert resolved(GivenRules()).change_of(empty_state(by_header.lineage)) is None


@pytest.mark.parametrize(
    ("entries", "reported", "may_change"),
    [
        ([{"pattern": "hdr", "strategy": "offset"}], None, True),
        ([], TopicPolicy(compaction_strategy="offset"), True),
        (["hdr"], TopicPolicy(compaction_strategy="offset"), True),
        (["hdr"], None, False),
    ],
)
def test_what_declares_a_strategy_may_change_it_and_a_default_may_not(
    entries: list[Any], reported: TopicPolicy | None, may_change: bool
) -> None:
    change = resolved(GivenRules(), *entries, reported=reported).change_of(state_by("header", header="v"))
    assert (change is None) == may_change


def test_what_a_broker_has_not_reported_must_be_given() -> None:
    reported = TopicPolicy(unanswered="no right")
    ignoring = {"ignore_cleanup_policy": True, "min_compaction_lag_ms": 0}
    alone = resolved(GivenRules(), reported=reported, **ignoring)
    assert alone.policy is None
    assert "unknown configs: compaction.strategy, delete.retention.ms (no right)" in alone.why_not
    given = GivenRules(Strategy.HEADER, "v", delete_retention_ms=7)
    assert str(resolved(given, reported=reported, **ignoring).in_use) == "header 'v'"
    with pytest.raises(SettingsError, match="strategy header needs the name of a header"):
        resolved(GivenRules(Strategy.HEADER), reported=reported, **ignoring)


@pytest.mark.parametrize(
    ("given", "entries"),
    [
        (GivenRules(None, " "), [HDR]),
        (GivenRules(), [{"pattern": "hdr", "strategy": "header"}]),
    ],
    ids=["the flag takes the name away", "the entry has none"],
)
def test_strategy_header_without_a_name_is_refused(given: GivenRules, entries: list[Any]) -> None:
    with pytest.raises(
        SettingsError, match="topic hdr: strategy header needs the name of a header: give --header NAME"
    ):
        resolved(given, *entries)
