"""Which topics are compacted, and by which values: what the settings say, and where they are silent what the broker says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import OnUnkeyed, Strategy, StrategyInUse, header_name, strategy_in_use, strategy_of
from sidecar.config import CompactionPolicy, CompactionSettings, CompactionWhen
from sidecar.errors import PartitionError
from sidecar.event_log import EVENTS
from sidecar.model import TopicPartition
from sidecar.topic_policy import TOPIC_CONFIGS, TopicPolicy

FROM_BROKER: Final = {
    "strategy": "compaction_strategy",
    "header": "compaction_strategy_header",
    "delete_retention_ms": "delete_retention_ms",
    "min_compaction_lag_ms": "min_compaction_lag_ms",
    "max_compaction_lag_ms": "max_compaction_lag_ms",
}
"""What the broker's word counts for, by our name and that of `TopicPolicy`: these say which records must stay, or must go. The
other settings weigh costs, and those of an archive are not those of a disk."""
DROPS_RECORDS: Final = ("strategy", "header", "delete_retention_ms", "min_compaction_lag_ms")
"""Of these, a wrong value drops records that the topic keeps."""
ENTRY: Final = "compaction.topics, entry"
SECTION: Final = "compaction"
DEFAULT: Final = "default"
NOT_NAMED: Final = "compaction.topics does not name it"
NO_HEADER: Final = "strategy header without the name of a header: records are compared by offset"
HEADER_NEEDED: Final = "strategy header needs the name of a header"
HEADER_UNKNOWN: Final = f"{HEADER_NEEDED}: a topic whose config gives none is not compacted"
NAME_HEADER: Final = "set header in the entry, or strategy offset"


@dataclass(frozen=True, slots=True)
class TopicRule:
    """What holds for a topic.

    `policy`: None if it is not compacted, and `why_not` says why; its strategy and header are those in use. `sources`: by name of
    a setting. `strategy` and `header`: as they are configured. `unknown`: why it is not known whether and how a topic with
    `before_upload` is compacted, if there is no policy for that reason; else "".
    """

    policy: CompactionPolicy | None
    why_not: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)
    strategy: Strategy = Strategy.OFFSET
    header: str = ""
    unknown: str = ""

    @property
    def remark(self) -> str:
        """That the topic's config names no header although its strategy needs one (KIP-280), "" if all is well."""
        return "" if self.policy is None else unnamed_header(self.strategy, self.header)

    @property
    def is_unnamed_in_settings(self) -> bool:
        """Whether the settings say `header`, and nothing names one. What a topic's config says is KIP-280's: see `remark`."""
        is_of_settings = self.sources.get("strategy", DEFAULT).startswith(SECTION)
        return is_of_settings and bool(unnamed_header(self.strategy, self.header))

    @property
    def is_declared(self) -> bool:
        """Whether the settings or the topic's config give the strategy, and for `header` the header: a default says nothing."""
        names = ("strategy", "header") if self.strategy is Strategy.HEADER else ("strategy",)
        return all(self.sources.get(name, DEFAULT) != DEFAULT for name in names)


def unnamed_header(strategy: Strategy, header: str) -> str:
    """That these values compare by offset although they say `header`, "" if they do not. Pure."""
    return NO_HEADER if strategy is Strategy.HEADER and not header_name(header) else ""


def topic_rule(settings: CompactionSettings, topic: str, reported: TopicPolicy) -> TopicRule:
    """Whether `run` compacts a topic, and how. Pure."""
    policy = settings.of_topic(topic)
    if policy is None:
        return TopicRule(None, NOT_NAMED if settings.enabled else "compaction.enabled is false")
    refusal = "" if policy.ignore_cleanup_policy else keeps_every_record(reported)
    if refusal:
        return TopicRule(None, f"{refusal}; compaction.ignore_cleanup_policy in its entry compacts it anyway")
    rule = with_reported(settings, topic, reported)
    why_not = rule.why_not if rule.policy is None else not_known(rule.policy, rule.sources, rule.strategy, reported)
    if not why_not and rule.is_unnamed_in_settings:
        why_not = f"{HEADER_NEEDED}, and neither the settings nor the topic's config give one; {NAME_HEADER}"
    if not why_not:
        return rule
    waits = policy.when is CompactionWhen.BEFORE_UPLOAD
    return TopicRule(
        None, why_not, rule.sources, rule.strategy, rule.header, unknown=reported.unanswered if waits else ""
    )


def with_reported(settings: CompactionSettings, topic: str, reported: TopicPolicy) -> TopicRule:
    """The settings' values for a topic, with the broker's where nothing is set; and where each comes from. Pure.

    A value is that of the topic's own entry, else that of `compaction` if it is set there, else the broker's, else the default.
    """
    entry = settings.entry_of(topic)
    of_entry = {} if entry is None else entry.overrides
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name in CompactionPolicy.model_fields:
        value = getattr(reported, FROM_BROKER[name]) if name in FROM_BROKER else None
        if entry is not None and name in of_entry:
            sources[name] = f"{ENTRY} {entry.pattern}"
        elif name in settings.model_fields_set:
            sources[name] = SECTION
        elif value is not None:
            values[name], sources[name] = value, reported.origins.get(FROM_BROKER[name], "broker")
        else:
            sources[name] = DEFAULT
    policy = settings.values_of(topic)
    try:
        strategy = strategy_of(values.get("strategy", policy.strategy))
    except ValueError as error:
        return TopicRule(
            None,
            f"its config compaction.strategy: {error}. Which records to retain is unknown, so it is not compacted. "
            "Set a strategy in its entry of compaction.topics",
            sources,
        )
    header = values.get("header", policy.header)
    in_use = strategy_in_use(strategy, header)
    values |= {"strategy": Strategy(in_use.strategy), "header": in_use.header}
    return TopicRule(policy.model_copy(update=values), sources=sources, strategy=strategy, header=header)


def keeps_every_record(reported: TopicPolicy) -> str:
    """Why a topic keeps all its records by its `cleanup.policy`, "" if it does not, or if its policy is not known."""
    if reported.cleanup_policy is None or reported.is_compacted:
        return ""
    return f"its cleanup.policy is {','.join(sorted(reported.cleanup_policy))}, without compact"


def not_known(policy: CompactionPolicy, sources: Mapping[str, str], strategy: Strategy, reported: TopicPolicy) -> str:
    """Why a topic must be left alone whose broker was asked and has not reported its configs, "" if it need not.

    The topic may keep every record, or another record of each key, or keep tombstones for longer. So nothing is compacted
    unless the settings have each of these values. Where no broker is configured, the settings and the defaults decide.
    """
    if not reported.unanswered:
        return ""
    missing = {
        name: TOPIC_CONFIGS[FROM_BROKER[name]][0]
        for name in DROPS_RECORDS
        if sources[name] == DEFAULT and (name != "header" or strategy is Strategy.HEADER)
    }
    if reported.cleanup_policy is None and not policy.ignore_cleanup_policy:
        missing = {"ignore_cleanup_policy": TOPIC_CONFIGS["cleanup_policy"][0], **missing}
    if not missing:
        return ""
    return (
        f"unknown configs: {', '.join(missing.values())} ({reported.unanswered}). To compact it all the same, set these "
        f"in `compaction` or in its entry of compaction.topics: {', '.join(missing)}"
    )


@dataclass(slots=True)
class TopicRules:
    """Answers for one topic after the other, and logs once what is left alone although it is named.

    `reported`: what the broker, or `topics.policies`, says of a topic.
    """

    settings: CompactionSettings
    reported: Callable[[str], TopicPolicy]
    _left_alone: dict[str, str] = field(default_factory=dict)
    _remarked: dict[str, str] = field(default_factory=dict)

    def policy_of(self, topic: str) -> CompactionPolicy | None:
        """What holds for a topic, None if it is not compacted. Thread-safe."""
        return self.rule_of(topic).policy

    def rule_of(self, topic: str) -> TopicRule:
        """The same, with where it comes from. Thread-safe."""
        rule = topic_rule(self.settings, topic, self.reported(topic))
        if rule.policy is not None or rule.why_not == NOT_NAMED:
            self._left_alone.pop(topic, None)
        elif self.settings.enabled and self._left_alone.get(topic) != rule.why_not:
            self._left_alone[topic] = rule.why_not
            EVENTS.warning("topic_not_compacted", topic=topic, reason=rule.why_not)
        if rule.remark and self._remarked.get(topic) != rule.remark:
            EVENTS.warning("compaction_header_not_named", topic=topic, reason=rule.remark)
        self._remarked[topic] = rule.remark
        return rule


def rules_of(policy: CompactionPolicy, now_ms: int) -> CompactionRules:
    """The rules at a time."""
    return CompactionRules(
        now_ms,
        strategy=policy.strategy,
        header=policy.header,
        strict_headers=policy.strict,
        refuses_unkeyed=policy.on_unkeyed is OnUnkeyed.REFUSE,
        delete_retention_ms=policy.delete_retention_ms,
        segment_bytes=policy.segment_bytes,
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
    return f"the newest compaction used strategy {before}, this one would use {rules_of(rule.policy, 0).in_use}"


def require_rule(
    partition: TopicPartition, before: CompactionPolicy, now: CompactionPolicy | None, refusal: str = ""
) -> None:
    """To be called right before the commit of what was compacted by a policy. Raises RuleChanged if another one holds now.

    `refusal`: why nothing may be compacted by the policy now, though it is the same; "" if it may.
    """
    if change := rule_change(before, now) or refusal:
        raise RuleChanged(f"{partition}: {change}. The compacted copies of the earlier rule are not committed")


EXPIRY_ADVICE = (
    "raise delete_retention_ms (delete.retention.ms), or lower max_compaction_lag_ms and the topic's segment.ms; "
    "their sum must be smaller than delete_retention_ms"
)
EXPIRY_ADVICE_UNCHECKED = (
    "set broker.connection, so that `doctor` can query the broker, or set the topics' segment_ms in topics.policies"
)


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
