"""What an operator has set for a topic, as the rules of one compaction."""

from __future__ import annotations

from typing import Final

from sidecar.compaction.rules import CompactionRules
from sidecar.config import CompactionPolicy
from sidecar.errors import PartitionError
from sidecar.model import TopicPartition
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


NOT_COMPACTED: Final = "the topic is not compacted now, or the sidecar does not know whether it is"


class RuleChanged(PartitionError):
    """The topic's compaction rule is another one now than that of a compaction. Nothing was committed."""


def rule_change(before: CompactionPolicy, now: CompactionPolicy | None) -> str:
    """Why what was compacted by one policy must not be committed under another, "" if the same records stay by both."""
    if now is None:
        return NOT_COMPACTED
    is_same = rules_of(before, 0) == rules_of(now, 0) and before.min_compaction_lag_ms == now.min_compaction_lag_ms
    if is_same:
        return ""
    names = [name for name in CompactionPolicy.model_fields if getattr(before, name) != getattr(now, name)]
    changes = (f"{name} from '{getattr(before, name)}' to '{getattr(now, name)}'" for name in names)
    return f"the topic's compaction rule changed: {', '.join(changes)}"


def require_rule(partition: TopicPartition, before: CompactionPolicy, now: CompactionPolicy | None) -> None:
    """To be called right before the commit of what was compacted by a policy. Raises RuleChanged if another one holds now."""
    if change := rule_change(before, now):
        raise RuleChanged(f"{partition}: {change}. What was compacted by the rule before is not committed")
