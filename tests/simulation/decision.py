"""Which symbolic batches stay: the product's own key table, fed with what its kernels would read from real records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from sidecar.compaction import key_table
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.topic_rule import TopicRule, topic_rule
from sidecar.config import CompactionPolicy, CompactionSettings
from sidecar.topic_policy import TopicPolicy
from tests.simulation.batches import NO_KEY, Batch, emptied
from tests.simulation.cluster import TOPIC

HEADER: Final = "v"
_VERSIONED: Final = 1 << 63
_HASH: Final = 0x9E3779B97F4A7C15
_WORD: Final = (1 << 64) - 1


@cache
def settings() -> CompactionSettings:
    """Of all sidecars: they compact the topic, and leave its strategy to its config."""
    return CompactionSettings.model_validate({"when": "before_upload", "topics": [TOPIC]})


@cache
def topic_policy(strategy: str | None, is_cleaned: bool = False) -> TopicPolicy:
    """What a sidecar knows of the topic's configs. `strategy`: None where nothing declares one."""
    return TopicPolicy(
        cleanup_policy=frozenset({"compact", "delete"}) if is_cleaned else None,
        compaction_strategy=strategy,
        compaction_strategy_header=HEADER if strategy == Strategy.HEADER else None,
        origins={"cleanup_policy": "the broker"},
    )


@cache
def rule_for(strategy: str | None) -> TopicRule:
    """How the topic is compacted by these configs."""
    return topic_rule(settings(), TOPIC, topic_policy(strategy))


def policy_for(strategy: str | None) -> CompactionPolicy:
    """The same, of a topic that is compacted."""
    found = rule_for(strategy).policy
    assert found is not None
    return found


def kept_of(batches: Sequence[Batch], ends: dict[int, bool], rules: CompactionRules) -> set[Batch]:
    """Of each key the batch that the product's table retains, of those that are committed; all markers, and what is not decided.

    Args:
        ends: by transaction, whether it was committed.
    """
    winners = _winners([batch for batch in batches if _counts(batch, ends)], rules)
    undecided = (batch for batch in batches if batch.transaction >= 0 and batch.transaction not in ends)
    return {*winners, *undecided, *(batch for batch in batches if batch.is_marker)}


def output_of(log: Sequence[Batch], kept: set[Batch]) -> list[Batch]:
    """What becomes of a segment. Its last batch stays: a broker knows a producer by it. A broker's cleaner may have taken all."""
    if not log:
        return []
    last = log[-1]
    stays = [batch for batch in log if batch in kept or batch is last]
    if last not in kept and last.key != NO_KEY:
        stays[-1] = emptied(last)
    return stays


def ends_of(batches: Iterable[Batch]) -> dict[int, bool]:
    """By transaction, whether it was committed."""
    return {batch.transaction: batch.commits for batch in batches if batch.commits is not None}


def _counts(batch: Batch, ends: dict[int, bool]) -> bool:
    is_record = not batch.is_marker and batch.key != NO_KEY
    return is_record and (batch.transaction < 0 or ends.get(batch.transaction, False))


def _winners(batches: Sequence[Batch], rules: CompactionRules) -> list[Batch]:
    """As `enter_records` fills the table, and as one bucket reduces it."""
    if not batches:
        return []
    words = key_table.slot_words(rules)
    rows: list[Any] = []
    for number, batch in enumerate(batches, 1):
        versioned, sort = 0, 0
        if rules.effective_strategy is Strategy.TIMESTAMP:
            sort = batch.timestamp_ms
        elif rules.effective_strategy is Strategy.HEADER and batch.version is not None:
            versioned, sort = _VERSIONED, batch.version
        rows.append(((batch.key + 1) * _HASH & _WORD, batch.key, number | versioned, sort & _WORD)[:words])
    blob = len(batches).to_bytes(8, "little") + np.array(rows, dtype="<u8").tobytes()
    (found,) = key_table.reduce_blobs([blob], rules, 1, 0)
    return [batches[ordinal] for ordinal in np.frombuffer(found.ordinals, dtype=np.uint32).tolist()]
