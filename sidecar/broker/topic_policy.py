"""Puts together what holds for a topic: what the operator says, over what the broker says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.topic_policy import TopicPolicy, Unanswered

_log = structlog.get_logger(__name__)

NOT_KNOWN = "not known"


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A value as the broker told it, and where it has it from."""

    text: str
    origin: str


def _policies(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _flag(text: str) -> bool:
    return text.strip().lower() == "true"


TOPIC_CONFIGS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "cleanup_policy": ("cleanup.policy", _policies),
    "retention_ms": ("retention.ms", int),
    "retention_bytes": ("retention.bytes", int),
    "remote_storage_enable": ("remote.storage.enable", _flag),
    "local_retention_ms": ("local.retention.ms", int),
    "local_retention_bytes": ("local.retention.bytes", int),
    "delete_retention_ms": ("delete.retention.ms", int),
    "min_compaction_lag_ms": ("min.compaction.lag.ms", int),
    "max_compaction_lag_ms": ("max.compaction.lag.ms", int),
    "min_cleanable_dirty_ratio": ("min.cleanable.dirty.ratio", float),
    "segment_bytes": ("segment.bytes", int),
    "segment_ms": ("segment.ms", int),
    "compaction_strategy": ("compaction.strategy", str),
    "compaction_strategy_header": ("compaction.strategy.header", str),
}
"""By our name: Kafka's, and how its text is read. A broker leaves those out of its answer that it does not know."""
BROKER_CONFIGS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "producer_id_expiration_ms": ("producer.id.expiration.ms", int),
}
"""The same for what only brokers have."""
POLICY_NAMES = (*TOPIC_CONFIGS, *BROKER_CONFIGS)
INTERNAL_SEGMENT_BYTES = "internal.segment.bytes"
"""Of brokers from 4.1 on, for tests: it wins over `segment.bytes`."""


def resolve_policy(
    topic: str,
    of_topic: Mapping[str, ConfigValue],
    of_broker: Mapping[str, ConfigValue],
    overrides: Sequence[TopicPolicySettings],
    *,
    unanswered: Unanswered | None = None,
) -> TopicPolicy:
    """The effective values for a topic, each with its origin.

    Args:
        of_topic, of_broker: what the broker told, by Kafka's names; empty where none was asked.
        overrides: of the operator; the first whose pattern matches the topic counts.
        unanswered: why the topic's are empty although a broker is asked.
    """
    values: dict[str, Any] = {}
    not_told = str(unanswered or NOT_KNOWN)
    origins = {name: NOT_KNOWN if name in BROKER_CONFIGS else not_told for name in POLICY_NAMES}
    for told, names in ((of_topic, TOPIC_CONFIGS), (of_broker, BROKER_CONFIGS)):
        for name, (kafka_name, read) in names.items():
            found = told.get(kafka_name)
            if found is None:
                continue
            try:
                values[name] = read(found.text)
            except ValueError:
                # Nothing of ours breaks because a broker has a value that no broker of today would accept.
                _log.warning("topic_config_not_understood", topic=topic, name=kafka_name, value=found.text)
                continue
            origins[name] = found.origin
    override = next((entry for entry in overrides if re.fullmatch(entry.pattern, topic)), None)
    overridden = {} if override is None else override.values
    for name, value in overridden.items():
        values[name] = _policies(str(value)) if name == "cleanup_policy" else value
    if override is not None:
        origins |= dict.fromkeys(overridden, f"topics.policies, entry {override.pattern}")
    return TopicPolicy(**values, origins=origins, overridden=frozenset(overridden), unanswered=unanswered)
