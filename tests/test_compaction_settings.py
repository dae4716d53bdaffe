"""Settings of compaction: which topic gets what, what cannot be meant, and how errors name entries of a list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sidecar.compaction_strategy import Strategy
from sidecar.config import CompactionPolicy, load_settings
from sidecar.config.compaction import TopicCompaction
from sidecar.errors import SettingsError


def load(tmp_path: Path, compaction: str, more: str = "", **arguments: Any) -> Any:
    file = tmp_path / "settings.yaml"
    file.write_text(f"store: {{url: /archive}}\ncompaction: {{{compaction}}}\n{more}")
    return load_settings(config_file=file, **arguments)


def test_nothing_is_compacted_by_default() -> None:
    settings = load_settings(flags={"store.url": "/archive"}).settings
    assert settings.compaction.of_topic("accounts") is None


def test_an_entry_overrides_the_defaults_and_the_first_match_counts(tmp_path: Path) -> None:
    entries = "[{pattern: 'cdc-.*', strategy: header, header: version}, {pattern: '.*s', segment_bytes: 2000}]"
    compaction = load(tmp_path, f"segment_bytes: 1000, topics: {entries}").settings.compaction
    cdc, accounts = compaction.of_topic("cdc-rows"), compaction.of_topic("accounts")
    assert (cdc.strategy, cdc.header, cdc.segment_bytes) == (Strategy.HEADER, "version", 1000)
    assert (accounts.strategy, accounts.segment_bytes) == (Strategy.OFFSET, 2000)
    assert compaction.of_topic("account") is None
    assert compaction.of_topic("my-cdc-") is None


def test_a_switch_ends_all_compaction(tmp_path: Path) -> None:
    assert load(tmp_path, "enabled: false, topics: [accounts]").settings.compaction.of_topic("accounts") is None


def test_patterns_alone_are_entries_also_in_variables() -> None:
    variables = {"TIERED_SIDECAR__COMPACTION__TOPICS": "accounts,balances"}
    compaction = load_settings(flags={"store.url": "/archive"}, environment=variables).settings.compaction
    assert compaction.topics == (TopicCompaction(pattern="accounts"), TopicCompaction(pattern="balances"))


def test_the_defaults_are_kafkas() -> None:
    policy = CompactionPolicy()
    assert policy.min_cleanable_dirty_ratio == 0.5
    assert policy.min_compaction_lag_ms == 0
    assert policy.max_compaction_lag_ms == 2**63 - 1
    assert policy.delete_retention_ms == 86_400_000
    assert policy.segment_bytes == 1024**3


def test_each_setting_of_a_policy_can_be_overridden_for_a_topic() -> None:
    assert set(TopicCompaction.model_fields) == {"pattern", *CompactionPolicy.model_fields}


@pytest.mark.parametrize(
    ("compaction", "expected"),
    [
        ("topics: [{pattern: a, header: v}]", "'a': header is for strategy header, not offset"),
        (
            "topics: [{pattern: a, strategy: timestamp, strict: true}]",
            "'a': strict is for strategy header, not timestamp",
        ),
        ("header: v, topics: [a]", "header 'v' is set, but no topic has the strategy header"),
        (
            "max_compaction_lag_ms: 3, topics: [{pattern: a, min_compaction_lag_ms: 10}]",
            "'a': min_compaction_lag_ms 10 is more than max_compaction_lag_ms 3",
        ),
        ("topics: [a, {pattern: a}]", "the pattern 'a' appears twice"),
        ("retry_wait_s: 9, retry_wait_max_s: 5", "retry_wait_max_s 5 is less than retry_wait_s 9"),
        (
            "topics: [{pattern: a, stratgy: x}]",
            "compaction.topics[0].stratgy (FILE): unknown setting; did you mean strategy?",
        ),
        ("topics: [a, {strategy: offset}]", "compaction.topics[1].pattern (FILE): not set"),
        (
            "topics: [{pattern: a, strategy: best}]",
            "compaction.topics[0].strategy (FILE): 'best' is not a compaction",
        ),
        ("topics: ['(']", "compaction.topics[0].pattern (FILE): '(' is not a regular expression"),
        (
            "topics: [__offsets]",
            "compaction.topics names __offsets, which topics.include, topics.exclude and topics.internal exclude",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_place(compaction: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        load(tmp_path, compaction)
    assert expected in str(refused.value).replace(str(tmp_path / "settings.yaml"), "FILE")


def test_topics_that_are_not_archived_cannot_be_compacted(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"compaction\.topics names web\.clicks"):
        load(tmp_path, r"topics: ['web\.clicks']", "topics: {exclude: ['web.*']}")


def test_work_files_do_not_lie_in_a_log_dir(tmp_path: Path) -> None:
    flags = {"broker.log_dirs": [tmp_path / "logs"], "compaction.staging_dir": tmp_path / "logs" / "staging"}
    with pytest.raises(SettingsError, match=r"compaction\.staging_dir .* is in the broker's log dir"):
        load_settings(flags={"store.url": "/archive", **flags})


def test_entries_are_shown_as_they_were_given(tmp_path: Path) -> None:
    shown = load(tmp_path, "topics: [{pattern: a, strategy: timestamp}, b]").shown()["compaction.topics"]
    assert shown["value"] == [{"pattern": "a", "strategy": "timestamp"}, {"pattern": "b"}]
