"""What an operator has set for a topic, as the rules of one compaction."""

from __future__ import annotations

from typing import Final

from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import StrategyInUse
from sidecar.compactor.topic_rule import TopicRule
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


class RuleUnknown(RuleChanged):
    """The broker does not tell the topic's configs now. Nothing was committed."""


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


def strategy_change(rule: TopicRule, newest: StrategyInUse | None) -> StrategyInUse | None:
    """The strategy of a partition's newest compaction, if the rule's is another one; None if there is no change."""
    if rule.policy is None or newest == rules_of(rule.policy, 0).in_use:
        return None
    return newest


def strategy_refusal(rule: TopicRule, newest: StrategyInUse | None) -> str:
    """Why nothing of a partition may be compacted by a rule, "" if it may: only a declared strategy may change that of its
    newest compaction.
    """
    before = strategy_change(rule, newest)
    if before is None or rule.policy is None or rule.is_declared:
        return ""
    return f"the newest compaction was by strategy {before}, this one would be by {rules_of(rule.policy, 0).in_use}"


def require_rule(
    partition: TopicPartition, before: CompactionPolicy, now: CompactionPolicy | None, refusal: str = ""
) -> None:
    """To be called right before the commit of what was compacted by a policy. Raises RuleChanged if another one holds now.

    `refusal`: why nothing may be compacted by the policy now, though it is the same; "" if it may.
    """
    if change := rule_change(before, now) or refusal:
        raise RuleChanged(f"{partition}: {change}. What was compacted by the rule before is not committed")
