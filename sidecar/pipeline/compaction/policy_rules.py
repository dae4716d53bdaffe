"""What an operator has set for a topic, as the rules of one compaction."""

from __future__ import annotations

from sidecar.compaction.rules import CompactionRules
from sidecar.config import CompactionPolicy
from sidecar.topic_policy import OnUnkeyed


def rules_of(policy: CompactionPolicy, now_ms: int, *, segment_bytes: int | None = None) -> CompactionRules:
    """The rules at a time. `segment_bytes`: instead of the topic's."""
    return CompactionRules(
        now_ms,
        strategy=policy.strategy,
        header=policy.header,
        strict_headers=policy.strict,
        refuses_unkeyed=policy.on_unkeyed is OnUnkeyed.REFUSE,
        delete_retention_ms=policy.delete_retention_ms,
        segment_bytes=segment_bytes or policy.segment_bytes,
        exact_keys=policy.exact_keys,
    )
