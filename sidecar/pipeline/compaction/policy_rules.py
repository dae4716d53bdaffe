"""What an operator has set for a topic, as the rules of one compaction."""

from __future__ import annotations

from sidecar.compaction.rules import CompactionRules, Strategy
from sidecar.config import CompactionPolicy

LAST_MODIFIED = "last_modified_ms"
"""Strategy parameter: the file time of the newest source, as a cleaner passes it on."""


def parameters_of(rules: CompactionRules) -> dict[str, str]:
    """What besides the strategy decided on the result, as commits hold it."""
    found = {"now_ms": str(rules.now_ms), "delete_retention_ms": str(rules.delete_retention_ms)}
    if rules.effective_strategy is Strategy.HEADER:
        found["header"] = rules.header_name
    return found


def rules_of(policy: CompactionPolicy, now_ms: int, *, segment_bytes: int | None = None) -> CompactionRules:
    """The rules at a time. `segment_bytes`: instead of the topic's."""
    return CompactionRules(
        now_ms,
        strategy=Strategy(policy.strategy.value),
        header=policy.header,
        strict_headers=policy.strict,
        delete_retention_ms=policy.delete_retention_ms,
        segment_bytes=segment_bytes or policy.segment_bytes,
        exact_keys=policy.exact_keys,
    )
