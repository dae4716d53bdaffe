"""Which topics are compacted, and by which values: what the settings say, and where they are silent what the broker says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from sidecar.config import CompactionPolicy, CompactionSettings
from sidecar.topic_policy import TopicPolicy

_log = structlog.get_logger(__name__)

FROM_BROKER = ("delete_retention_ms", "min_compaction_lag_ms", "max_compaction_lag_ms")
"""What the broker's word counts for: these say which records must stay, or must go. The other settings weigh costs, and those of
an archive are not those of a disk."""
NOT_NAMED = "compaction.topics does not name it"


@dataclass(frozen=True, slots=True)
class TopicRule:
    """What holds for a topic. `policy`: None if it is not compacted, and `why_not` says why. `sources`: by name of a setting."""

    policy: CompactionPolicy | None
    why_not: str = ""
    sources: dict[str, str] = field(default_factory=dict)


def topic_rule(settings: CompactionSettings, topic: str, told: TopicPolicy) -> TopicRule:
    """Whether `run` compacts a topic, and how. Pure.

    A broker that is asked and has not told the topic's `cleanup.policy` may be keeping every record: until it tells, nothing is
    compacted.
    """
    policy = settings.of_topic(topic)
    if policy is None:
        return TopicRule(None, NOT_NAMED if settings.enabled else "compaction.enabled is false")
    refusal = "" if policy.ignore_cleanup_policy else keeps_every_record(told)
    if refusal:
        return TopicRule(None, f"{refusal}; compaction.ignore_cleanup_policy in its entry compacts it all the same")
    merged, sources = with_told(settings, topic, policy, told)
    return TopicRule(merged, sources=sources)


def with_told(
    settings: CompactionSettings, topic: str, policy: CompactionPolicy, told: TopicPolicy
) -> tuple[CompactionPolicy, dict[str, str]]:
    """The settings' values for a topic, with the broker's where nothing is set; and where each comes from. Pure.

    A value is that of the topic's own entry, else that of `compaction` if it is set there, else the broker's, else the default.
    """
    of_entry = settings.overrides_of(topic)
    values: dict[str, int] = {}
    sources: dict[str, str] = {}
    for name in CompactionPolicy.model_fields:
        sources[name] = "compaction.topics" if name in of_entry else "compaction"
        value = getattr(told, name) if name in FROM_BROKER else None
        if name not in of_entry and name not in settings.model_fields_set and value is not None:
            values[name], sources[name] = value, told.origins.get(name, "broker")
    return policy.model_copy(update=values), sources


def keeps_every_record(told: TopicPolicy) -> str:
    """Why a topic must be taken for one that keeps all its records, "" if it need not: by its broker, or as nobody was asked."""
    if told.cleanup_policy is None:
        return f"its cleanup.policy is not known: {told.unanswered}" if told.unanswered else ""
    if told.is_compacted:
        return ""
    return f"its cleanup.policy is {','.join(sorted(told.cleanup_policy))}, without compact"


class TopicRules:
    """Answers for one topic after the other, and logs once what is left alone although it is named."""

    def __init__(self, settings: CompactionSettings, told: Callable[[str], TopicPolicy]) -> None:
        """Args: told: what the broker, or `topics.policies`, says of a topic."""
        self._settings = settings
        self._told = told
        self._left_alone: dict[str, str] = {}

    def policy_of(self, topic: str) -> CompactionPolicy | None:
        """What holds for a topic, None if it is not compacted. Thread-safe."""
        rule = topic_rule(self._settings, topic, self._told(topic))
        if rule.policy is not None or rule.why_not == NOT_NAMED:
            self._left_alone.pop(topic, None)
        elif self._settings.enabled and self._left_alone.get(topic) != rule.why_not:
            self._left_alone[topic] = rule.why_not
            _log.warning("compaction_leaves_topic_alone", topic=topic, reason=rule.why_not)
        return rule.policy
