"""What a strategy and a header name mean together: the same from flags, from settings and from a topic's own configs."""

from __future__ import annotations

import pytest

from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy, StrategyInUse, header_name, strategy_in_use, strategy_of
from sidecar.compactor.command_rules import GivenRules, command_rules
from sidecar.compactor.topic_rule import HEADER_NEEDED, NO_HEADER, topic_rule
from sidecar.config import CompactionSettings
from sidecar.errors import SettingsError
from sidecar.topic_policy import TopicPolicy

OFFSET, TIMESTAMP, BY_V = StrategyInUse("offset"), StrategyInUse("timestamp"), StrategyInUse("header", "v")
# Strategy and header as somebody writes them, and what KIP-280 makes of them.
MEANINGS = [
    ("", "", OFFSET),
    ("  ", "", OFFSET),
    ("offset", "", OFFSET),
    ("timestamp", "", TIMESTAMP),
    (" timestamp\t", "", TIMESTAMP),
    ("header", "", OFFSET),
    ("header", " \t\n", OFFSET),
    ("header", "v", BY_V),
    (" header ", " v ", BY_V),
    ("header", "V", StrategyInUse("header", "V")),
    ("header", "a b", StrategyInUse("header", "a b")),
    ("header", "\u00a0v", StrategyInUse("header", "\u00a0v")),
]


@pytest.mark.parametrize(("strategy", "header", "expected"), MEANINGS)
def test_values_mean_the_same_wherever_they_are_written(strategy: str, header: str, expected: StrategyInUse) -> None:
    """But for `header` without a name: KIP-280 makes it `offset` in a topic's config; settings and flags are refused."""
    by_settings = topic_rule(
        CompactionSettings.model_validate({"topics": [{"pattern": "t", "strategy": strategy, "header": header}]}),
        "t",
        TopicPolicy(),
    )
    reported = TopicPolicy(compaction_strategy=strategy, compaction_strategy_header=header)
    by_topic = topic_rule(CompactionSettings.model_validate({"topics": ["t"]}), "t", reported)
    given = GivenRules(strategy_of(strategy), header)
    unnamed = "header" in strategy and expected == OFFSET
    assert by_topic.remark == (NO_HEADER if unnamed else "")
    if unnamed:
        assert by_settings.policy is None
        assert by_settings.why_not.startswith(HEADER_NEEDED)
        with pytest.raises(SettingsError, match=f"topic t: {HEADER_NEEDED}: give --header NAME"):
            command_rules(CompactionSettings(), "t", TopicPolicy(), given)
        policies = [by_topic.policy]
    else:
        by_flags = command_rules(CompactionSettings(), "t", TopicPolicy(), given)
        assert [by_settings.remark, by_flags.remark] == ["", ""]
        policies = [by_settings.policy, by_topic.policy, by_flags.policy]
    for policy in policies:
        assert policy is not None
        assert StrategyInUse(policy.strategy, policy.header) == expected
    assert CompactionRules(0, strategy=strategy_of(strategy), header=header).in_use == expected


@pytest.mark.parametrize("text", ["best", "Header", "offset,header", "\u00a0"])
def test_other_names_are_refused(text: str) -> None:
    with pytest.raises(
        ValueError, match="is not a compaction strategy: expected offset, timestamp, header, or nothing"
    ):
        strategy_of(text)


def test_a_name_counts_for_the_strategy_header_alone() -> None:
    assert [str(strategy_in_use(strategy, " v ")) for strategy in Strategy] == ["offset", "timestamp", "header 'v'"]


def test_a_configured_name_is_trimmed_as_kafka_trims_and_nothing_else_is_changed() -> None:
    """Java's String.trim takes away all up to the space, and no other white space."""
    assert header_name("\x01\t v \r\n") == "v"
    assert header_name("\u00a0v\u2003") == "\u00a0v\u2003"
    assert header_name(" a  b ") == "a  b"
