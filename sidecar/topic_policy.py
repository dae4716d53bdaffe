"""What holds for a topic: a value of its own, since the broker, the settings and Kafka's defaults all have a say in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

NOT_REPORTED: Final = "the broker has not reported it yet"
"""Only its response is missing."""


@dataclass(frozen=True, slots=True)
class TopicPolicy:
    """What holds for a topic on its broker, in Kafka's own values (-1 unlimited, -2 as `retention.*`); None: not known.

    `producer_id_expiration_ms` is the broker's. `compaction_strategy*` are KIP-280's, which no release of Apache Kafka has.
    `origins`: where each value comes from, by the name it has here. `overridden`: names of the values that the settings give.
    `unanswered`: why a queried broker has not returned them, "" if it has, or if none is queried.
    """

    cleanup_policy: frozenset[str] | None = None
    retention_ms: int | None = None
    retention_bytes: int | None = None
    remote_storage_enable: bool | None = None
    remote_log_copy_disable: bool | None = None
    local_retention_ms: int | None = None
    local_retention_bytes: int | None = None
    delete_retention_ms: int | None = None
    min_compaction_lag_ms: int | None = None
    max_compaction_lag_ms: int | None = None
    min_cleanable_dirty_ratio: float | None = None
    segment_bytes: int | None = None
    segment_ms: int | None = None
    compaction_strategy: str | None = None
    compaction_strategy_header: str | None = None
    producer_id_expiration_ms: int | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    overridden: frozenset[str] = frozenset()
    unanswered: str = ""

    @property
    def is_compacted(self) -> bool:
        return self.cleanup_policy is not None and "compact" in self.cleanup_policy

    @property
    def is_tiered(self) -> bool:
        """Whether the broker deletes a local segment only once remote storage has a copy of it.

        Source: UnifiedLog.remoteLogEnabledAndRemoteCopyEnabled.
        """
        return bool(self.remote_storage_enable) and not self.remote_log_copy_disable

    @property
    def local_limit_ms(self) -> int | None:
        """How old a segment on the broker's disk may become before it is deleted, None for ever or if it is not known."""
        return self._limit(self.retention_ms, self.local_retention_ms)

    @property
    def local_limit_bytes(self) -> int | None:
        """How large a log may become on the broker's disk, None for any size or if it is not known."""
        return self._limit(self.retention_bytes, self.local_retention_bytes)

    @property
    def is_retention_known(self) -> bool:
        """Whether it is known when the broker deletes segments, or that it never does."""
        if not self._may_delete:
            return True
        limits = (self.retention_ms, self.retention_bytes, self.local_limit_ms, self.local_limit_bytes)
        return any(limit is not None for limit in limits)

    @property
    def deletes_nothing(self) -> bool:
        """Whether it is known that the broker's retention never deletes a segment."""
        return self.is_retention_known and self.local_limit_ms is None and self.local_limit_bytes is None

    @property
    def _may_delete(self) -> bool:
        """Whether the limits count, as far as it is known. Source: UnifiedLog.deleteOldSegments."""
        policy = self.cleanup_policy
        return policy is None or "delete" in policy or (not policy and self.is_tiered)

    def _limit(self, whole: int | None, local: int | None) -> int | None:
        limit = local if local not in (None, -2) and self.is_tiered else whole
        return None if limit is None or limit < 0 or not self._may_delete else limit


def _policies(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _flag(text: str) -> bool:
    return text.strip().lower() == "true"


_READERS: Mapping[str, Callable[[str], Any]] = {
    "cleanup_policy": _policies,
    "remote_storage_enable": _flag,
    "remote_log_copy_disable": _flag,
    "min_cleanable_dirty_ratio": float,
    "compaction_strategy": str,
    "compaction_strategy_header": str,
}
"""How the text of a configuration is read, where it is no whole number."""
BROKER_CONFIGS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "producer_id_expiration_ms": ("producer.id.expiration.ms", int),
}
"""By our name: Kafka's, and how its text is read; of what only brokers have."""
TOPIC_CONFIGS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    known.name: (known.name.replace("_", "."), _READERS.get(known.name, int))
    for known in fields(TopicPolicy)
    if known.default is None and known.name not in BROKER_CONFIGS
}
"""The same for topics. A broker leaves those out of its answer that it does not know."""
POLICY_NAMES = (*TOPIC_CONFIGS, *BROKER_CONFIGS)
