"""What holds for one topic, value by value, and where each comes from: for people who wonder."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from sidecar.broker.topic_policy import NOT_KNOWN, resolve_policy
from sidecar.clock import Clock
from sidecar.config import CompactionPolicy, Settings
from sidecar.errors import SettingsError
from sidecar.model import TopicPolicy
from sidecar.pipeline.configured_facts import open_facts


def effective_policy(settings: Settings, topic: str, clock: Clock) -> tuple[dict[str, dict[str, Any]], str]:
    """JSON-able `value` and `source` by name, and why the broker could not be asked ("" if it could, or none is configured).

    Raises SettingsError where the log dirs of a configured broker are not given.
    """
    if settings.broker.connection.is_configured and not settings.broker.log_dirs:
        raise SettingsError("broker.log_dirs: they tell which broker to ask; give --log-dir")
    away = ""
    if settings.broker.log_dirs:
        with open_facts(settings, clock) as facts:
            facts.refresh()
            policy, away = facts.policy(topic), facts.state().away
    else:
        policy = resolve_policy(topic, {}, {}, settings.topics.policies)
    return {**_of_broker(policy), **_of_compaction(settings, topic)}, away


def _of_broker(policy: TopicPolicy) -> dict[str, dict[str, Any]]:
    shown = {}
    for field in fields(TopicPolicy):
        if field.name == "origins":
            continue
        value = getattr(policy, field.name)
        plain = ",".join(sorted(value)) if isinstance(value, frozenset) else value
        shown[field.name] = {"value": plain, "source": policy.origins.get(field.name, NOT_KNOWN)}
    return shown


def _of_compaction(settings: Settings, topic: str) -> dict[str, dict[str, Any]]:
    """Our own compaction of the topic's archive, which goes by its own settings."""
    policy = settings.compaction.of_topic(topic)
    if policy is None:
        return {"compaction": {"value": None, "source": "compaction.topics does not name it"}}
    by_pattern = settings.compaction.overrides_of(topic)
    return {
        f"compaction.{name}": {
            "value": getattr(policy, name),
            "source": "compaction.topics" if name in by_pattern else "compaction",
        }
        for name in CompactionPolicy.model_fields
    }
