"""Whether a tombstone can be removed while older versions of its key still wait for their first compaction."""

from __future__ import annotations

from sidecar.compaction_strategy import Strategy, strategy_in_use
from sidecar.config import CompactionPolicy

ADVICE = (
    "raise delete_retention_ms (delete.retention.ms), or lower max_compaction_lag_ms and the topic's segment.ms; "
    "their sum must be smaller than delete_retention_ms"
)
ADVICE_UNCHECKED = "let `doctor` ask the broker (broker.connection), or set the topics' segment_ms in topics.policies"


def tombstone_expiry_risk(policy: CompactionPolicy, segment_ms: int | None) -> str:
    """Why deleted keys can come back with these values, "" if they cannot. Pure.

    With `timestamp` and `header` a record can lose to a tombstone at a lower offset. If the tombstone is removed before
    that record is compacted, the record has no rival left and stays. With `offset` no record loses to a lower offset.
    Source: KIP-280, which asks for `segment.ms` and `max.compaction.lag.ms` smaller than `delete.retention.ms`.

    Args:
        segment_ms: the topic's `segment.ms`. None if unknown: then only the other two values count, and see `expiry_unchecked`.
    """
    limit_ms, strategy = policy.delete_retention_ms, strategy_in_use(policy.strategy, policy.header).strategy
    if strategy == Strategy.OFFSET or policy.max_compaction_lag_ms + (segment_ms or 0) < limit_ms:
        return ""
    segment = "" if segment_ms is None else f" + segment.ms {segment_ms}"
    return (
        f"strategy {strategy} with max_compaction_lag_ms {policy.max_compaction_lag_ms}{segment}, and delete_retention_ms "
        f"{limit_ms}: a tombstone can be removed before an older version of its key is compacted; the deleted key then comes back"
    )


def expiry_unchecked(policy: CompactionPolicy, segment_ms: int | None) -> str:
    """Why `tombstone_expiry_risk` cannot tell that all is well, "" if it can. Pure."""
    is_by_offset = strategy_in_use(policy.strategy, policy.header).strategy == Strategy.OFFSET
    if is_by_offset or segment_ms is not None or tombstone_expiry_risk(policy, None):
        return ""
    return (
        f"segment.ms is not known; it must be below {policy.delete_retention_ms - policy.max_compaction_lag_ms} (Kafka's default: "
        "604800000), or a deleted key can come back"
    )
