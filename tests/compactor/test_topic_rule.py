"""Which topics are compacted, and by whose values: the settings', and where they are silent the broker's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from sidecar.compactor.topic_rule import NOT_NAMED, TopicRules, topic_rule
from sidecar.config.compaction import NEVER_MS, CompactionSettings
from sidecar.partition.run_limits import RunLimits
from sidecar.topic_policy import NOT_REPORTED, TopicPolicy

DAY_MS = 86_400_000
COMPACTED = TopicPolicy(
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=5,
    min_compaction_lag_ms=6,
    max_compaction_lag_ms=7,
    min_cleanable_dirty_ratio=0.1,
    segment_bytes=16384,
    origins={"delete_retention_ms": "topic", "min_compaction_lag_ms": "topic", "max_compaction_lag_ms": "topic"},
)


def settings(*topics: dict[str, Any], **values: Any) -> CompactionSettings:
    return CompactionSettings.model_validate({**values, "topics": topics})


@pytest.mark.parametrize(
    ("reported", "why_not"),
    [
        (TopicPolicy(), ""),
        (COMPACTED, ""),
        (TopicPolicy(cleanup_policy=frozenset({"compact", "delete"})), ""),
        (TopicPolicy(cleanup_policy=frozenset({"delete"})), "its cleanup.policy is delete, without compact"),
    ],
)
def test_a_topic_that_keeps_every_record_is_left_alone_unless_its_entry_says_otherwise(
    reported: TopicPolicy, why_not: str
) -> None:
    found = topic_rule(settings({"pattern": "orders"}), "orders", reported)
    assert (found.policy is None, found.why_not.partition(";")[0]) == (bool(why_not), why_not)
    anyway = topic_rule(settings({"pattern": "orders", "ignore_cleanup_policy": True}), "orders", reported)
    assert anyway.policy is not None
    assert topic_rule(settings(), "orders", COMPACTED).why_not == NOT_NAMED


def test_what_is_set_wins_over_the_broker_and_the_broker_over_defaults() -> None:
    found = topic_rule(
        settings({"pattern": "orders", "max_compaction_lag_ms": 70}, delete_retention_ms=50), "orders", COMPACTED
    )
    assert found.policy is not None
    assert (found.policy.delete_retention_ms, found.sources["delete_retention_ms"]) == (50, "compaction")
    assert (found.policy.max_compaction_lag_ms, found.sources["max_compaction_lag_ms"]) == (
        70,
        "compaction.topics, entry orders",
    )
    assert (found.policy.min_compaction_lag_ms, found.sources["min_compaction_lag_ms"]) == (6, "topic")
    assert (found.policy.min_cleanable_dirty_ratio, found.policy.segment_bytes) == (0.5, 1024**3)
    alone = topic_rule(settings({"pattern": "orders"}), "orders", TopicPolicy()).policy
    assert alone is not None
    assert (alone.delete_retention_ms, alone.min_compaction_lag_ms, alone.max_compaction_lag_ms) == (
        DAY_MS,
        0,
        NEVER_MS,
    )


def test_a_topic_that_is_named_and_left_alone_is_reported_once_until_the_reason_changes() -> None:
    reported = {"orders": TopicPolicy(cleanup_policy=frozenset({"delete"}))}
    rules = TopicRules(settings({"pattern": "orders"}), reported.__getitem__)
    with capture_logs() as logs:
        assert rules.policy_of("orders") is None
        assert rules.policy_of("orders") is None
        reported["orders"] = COMPACTED
        assert rules.policy_of("orders") is not None
        reported["orders"] = TopicPolicy(unanswered="no right")
        assert rules.policy_of("orders") is None
    assert [log["event"] for log in logs] == ["topic_not_compacted"] * 2


def test_producers_are_remembered_as_the_broker_does_unless_the_operator_says_otherwise() -> None:
    reported = TopicPolicy(producer_id_expiration_ms=5, origins={"producer_id_expiration_ms": "Kafka's default"})
    override = TopicPolicy(producer_id_expiration_ms=6, overridden=frozenset({"producer_id_expiration_ms"}))
    silent, given = (
        RunLimits(producer_id_expiration_ms=9),
        RunLimits(producer_id_expiration_ms=9, expiration_is_given=True),
    )
    assert [silent.expiration_ms(one) for one in (TopicPolicy(), reported, override)] == [9, 5, 6]
    assert [given.expiration_ms(one) for one in (TopicPolicy(), reported, override)] == [9, 9, 6]


BY_HEADER = TopicPolicy(
    cleanup_policy=frozenset({"compact"}),
    compaction_strategy="header",
    compaction_strategy_header="seq",
    origins={"compaction_strategy": "topic", "compaction_strategy_header": "broker, dynamic"},
)


@pytest.mark.parametrize(
    ("section", "entry", "expected", "source"),
    [
        ({}, {}, ("header", "seq"), "topic"),
        ({}, {"strategy": "timestamp"}, ("timestamp", ""), "compaction.topics, entry orders"),
        ({}, {"strategy": "header", "header": "v"}, ("header", "v"), "compaction.topics, entry orders"),
        ({}, {"strategy": "header"}, ("header", "seq"), "compaction.topics, entry orders"),
        ({}, {"strategy": ""}, ("offset", ""), "compaction.topics, entry orders"),
        ({"strategy": "timestamp"}, {}, ("timestamp", ""), "compaction"),
        ({"strategy": "timestamp"}, {"strategy": "offset"}, ("offset", ""), "compaction.topics, entry orders"),
        (
            {"strategy": "timestamp"},
            {"strategy": "header", "header": "v"},
            ("header", "v"),
            "compaction.topics, entry orders",
        ),
        ({"strategy": "header", "header": "w"}, {"header": "v"}, ("header", "v"), "compaction"),
    ],
)
def test_the_entry_wins_over_the_section_and_both_over_the_topics_own_strategy(
    section: dict[str, Any], entry: dict[str, Any], expected: tuple[str, str], source: str
) -> None:
    found = topic_rule(settings({"pattern": "orders", **entry}, **section), "orders", BY_HEADER)
    assert found.policy is not None
    assert (found.policy.strategy, found.policy.header) == expected
    assert found.sources["strategy"] == source


def test_a_topic_whose_own_strategy_is_unknown_is_left_alone_unless_its_entry_has_one() -> None:
    reported = replace(BY_HEADER, compaction_strategy="newest")
    found = topic_rule(settings({"pattern": "orders"}), "orders", reported)
    assert found.policy is None
    assert "its config compaction.strategy: 'newest' is not a compaction strategy" in found.why_not
    assert topic_rule(settings({"pattern": "orders", "strategy": "offset"}), "orders", reported).policy is not None


TIMES = {"delete_retention_ms": 5, "min_compaction_lag_ms": 6}
ANYWAY = {"ignore_cleanup_policy": True}
SAFE = {**ANYWAY, **TIMES, "strategy": "offset"}


@pytest.mark.parametrize("unanswered", [NOT_REPORTED, "TOPIC_AUTHORIZATION_FAILED"])
@pytest.mark.parametrize(
    ("entry", "missing"),
    [
        ({}, "ignore_cleanup_policy, strategy, delete_retention_ms, min_compaction_lag_ms"),
        (ANYWAY, "strategy, delete_retention_ms, min_compaction_lag_ms"),
        ({**ANYWAY, **TIMES}, "strategy"),
        ({**ANYWAY, **TIMES, "strategy": "header"}, "header"),
        ({**ANYWAY, "strategy": "offset"}, "delete_retention_ms, min_compaction_lag_ms"),
        ({**TIMES, "strategy": "timestamp"}, "ignore_cleanup_policy"),
        (SAFE, ""),
        ({**SAFE, "strategy": "header", "header": "v"}, ""),
    ],
)
def test_where_a_broker_has_not_reported_a_topics_configs_only_the_settings_count(
    unanswered: str, entry: dict[str, Any], missing: str
) -> None:
    """Whatever the topic keeps by its own configs: a default in their place would drop it."""
    reported = TopicPolicy(unanswered=unanswered)
    found = topic_rule(settings({"pattern": "orders", **entry}), "orders", reported)
    assert (found.policy is None, found.why_not.rpartition(": ")[2]) == (bool(missing), missing)
    assert (f"({unanswered})" in found.why_not) == bool(missing)
    section = {name: value for name, value in entry.items() if name != "header"}
    assert (topic_rule(settings({"pattern": "orders", **entry}, **section), "orders", reported).policy is None) == bool(
        missing
    )
    answered = topic_rule(settings({"pattern": "orders", **entry}), "orders", TopicPolicy())
    assert (answered.policy is None) == (missing == "header")


def test_what_topics_policies_gives_counts_although_the_broker_has_not_reported_it() -> None:
    reported = TopicPolicy(
        cleanup_policy=frozenset({"compact"}),
        delete_retention_ms=5,
        min_compaction_lag_ms=6,
        origins=dict.fromkeys(("delete_retention_ms", "min_compaction_lag_ms"), "topics.policies, entry .*"),
        unanswered="no right",
    )
    alone = topic_rule(settings({"pattern": "orders"}), "orders", reported)
    assert alone.why_not == (
        "unknown configs: compaction.strategy (no right). To compact it all the same, set these in "
        "`compaction` or in its entry of compaction.topics: strategy"
    )
    found = topic_rule(settings({"pattern": "orders", "strategy": "offset"}), "orders", reported).policy
    assert found is not None
    assert (found.delete_retention_ms, found.min_compaction_lag_ms) == (5, 6)


@pytest.mark.parametrize(
    ("section", "entry", "reported", "is_declared"),
    [
        ({}, {}, TopicPolicy(), False),
        ({}, {}, BY_HEADER, True),
        ({"strategy": "offset"}, {}, TopicPolicy(), True),
        ({}, {"strategy": ""}, TopicPolicy(), True),
        ({}, {"strategy": "header"}, TopicPolicy(), False),
        ({}, {"strategy": "header"}, BY_HEADER, True),
    ],
)
def test_a_default_declares_no_strategy(
    section: dict[str, Any], entry: dict[str, Any], reported: TopicPolicy, is_declared: bool
) -> None:
    assert (
        topic_rule(settings({"pattern": "orders", **entry}, **section), "orders", reported).is_declared == is_declared
    )


def test_a_header_that_is_not_named_is_reported_once() -> None:
    reported = replace(COMPACTED, compaction_strategy="header")
    rules = TopicRules(settings({"pattern": "orders"}), lambda _topic: reported)
    with capture_logs() as logs:
        policies = [rules.policy_of("orders") for _ in range(3)]
    assert {policy and policy.strategy for policy in policies} == {"offset"}
    assert [(log["event"], log["log_level"]) for log in logs] == [("compaction_header_not_named", "warning")]


def test_a_topic_is_left_alone_whose_header_neither_the_settings_nor_its_config_name() -> None:
    """The settings ask for versions: a compaction by offset would drop what they want to keep."""
    for section, entry in (({}, {"strategy": "header"}), ({"strategy": "header"}, {})):
        compaction = settings({"pattern": "orders", **entry}, **section)
        rules = TopicRules(compaction, lambda _topic: COMPACTED)
        with capture_logs() as logs:
            assert [rules.policy_of("orders") for _ in range(3)] == [None] * 3
        assert [(log["event"], log["log_level"]) for log in logs] == [("topic_not_compacted", "warning")]
        assert "strategy header needs the name of a header" in logs[0]["reason"]
        named = replace(COMPACTED, compaction_strategy_header="v")
        assert topic_rule(compaction, "orders", named).policy is not None
