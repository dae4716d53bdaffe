"""What holds for one topic, value by value, and where each comes from: for people who wonder."""

from typing import Any

from sidecar.broker.topic_configs import NOT_KNOWN, resolve_policy
from sidecar.clock import Clock
from sidecar.compactor.topic_rule import topic_rule
from sidecar.config import Settings
from sidecar.errors import SettingsError
from sidecar.logformat.files import topics_of
from sidecar.partition.wait_reason import render
from sidecar.runner.assembly import policy_of
from sidecar.runner.configured_facts import open_facts
from sidecar.topic_policy import POLICY_NAMES, TopicPolicy


def effective_policy(settings: Settings, topic: str, clock: Clock) -> tuple[dict[str, dict[str, Any]], str]:
    """JSON-able `value` and `source` by name, and why the broker could not be asked ("" if it could, or none is configured).

    Raises SettingsError where the log dirs of a configured broker are not given, or have no such topic.
    """
    if settings.broker.connection.is_configured and not settings.broker.log_dirs:
        raise SettingsError("broker.log_dirs is not set, and it identifies the broker to query: give --log-dir")
    if settings.broker.connection.is_configured and topic not in (here := topics_of(settings.broker.log_dirs)):
        raise SettingsError(
            f"this broker has no partition of topic {topic}; there are: {', '.join(sorted(here)) or 'none'}"
        )
    away = ""
    if settings.broker.log_dirs:
        with open_facts(settings, clock) as facts:
            facts.refresh()
            policy, away = facts.policy(topic), render(facts.state().away)
    else:
        policy = resolve_policy(topic, {}, {}, settings.topics.policies)
    return {**_of_broker(policy), **_of_snapshots(settings, policy), **_of_compaction(settings, topic, policy)}, away


def _of_broker(policy: TopicPolicy) -> dict[str, dict[str, Any]]:
    shown = {}
    for name in POLICY_NAMES:
        value = getattr(policy, name)
        plain = ",".join(sorted(value)) if isinstance(value, frozenset) else value
        shown[name] = {"value": plain, "source": policy.origins.get(name, NOT_KNOWN)}
    return shown


def _of_compaction(settings: Settings, topic: str, reported: TopicPolicy) -> dict[str, dict[str, Any]]:
    rule = topic_rule(settings.compaction, topic, reported)
    if rule.policy is None:
        return {"compaction": {"value": None, "source": rule.why_not}}
    shown = {
        f"compaction.{name}": {"value": getattr(rule.policy, name), "source": source}
        for name, source in rule.sources.items()
    }
    if rule.remark:
        shown["compaction.strategy"]["source"] += f"; {rule.remark}"
    return shown


def _of_snapshots(settings: Settings, reported: TopicPolicy) -> dict[str, dict[str, Any]]:
    value = policy_of(settings, repeats=False).expiration_ms(reported)
    is_reported = value is not None and value == reported.producer_id_expiration_ms
    source = reported.origins["producer_id_expiration_ms"] if is_reported else "broker.producer_id_expiration_ms"
    return {"snapshots.producer_id_expiration_ms": {"value": value, "source": source}}
