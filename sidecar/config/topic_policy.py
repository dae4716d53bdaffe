"""Topic configs that an operator sets over the broker's. Names and values are those of Kafka's topic configs."""

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from sidecar.config.topic_filter import Pattern
from sidecar.store_settings import Section

UNLIMITED = -1
AS_RETENTION = -2
_MAX = 2**63 - 1

_Limit = Annotated[int, Field(ge=UNLIMITED, le=_MAX)]
_LocalLimit = Annotated[int, Field(ge=AS_RETENTION, le=_MAX)]
_Lag = Annotated[int, Field(ge=0, le=_MAX)]


class CleanupPolicy(StrEnum):
    """What the broker does with old segments."""

    DELETE = "delete"
    COMPACT = "compact"
    BOTH = "compact,delete"


class TopicPolicySettings(Section):
    """Topics, and configs that override the broker's for them. Values that are not set are the broker's."""

    pattern: Pattern
    """Regular expression that must match the whole name of a topic. The first entry that matches applies."""
    cleanup_policy: CleanupPolicy | None = None
    """`cleanup.policy`."""
    retention_ms: _Limit | None = None
    """`retention.ms`, -1 for unlimited."""
    retention_bytes: _Limit | None = None
    """`retention.bytes`, -1 for unlimited."""
    remote_storage_enable: bool | None = None
    """`remote.storage.enable`: if true, `local_retention_*` apply."""
    local_retention_ms: _LocalLimit | None = None
    """`local.retention.ms`, -2 for `retention_ms`."""
    local_retention_bytes: _LocalLimit | None = None
    """`local.retention.bytes`, -2 for `retention_bytes`."""
    delete_retention_ms: _Lag | None = None
    """`delete.retention.ms`."""
    min_compaction_lag_ms: _Lag | None = None
    """`min.compaction.lag.ms`."""
    max_compaction_lag_ms: Annotated[int, Field(ge=1, le=_MAX)] | None = None
    """`max.compaction.lag.ms`."""
    min_cleanable_dirty_ratio: Annotated[float, Field(ge=0, le=1)] | None = None
    """`min.cleanable.dirty.ratio`."""
    segment_bytes: Annotated[int, Field(ge=14, lt=2**31)] | None = None
    """`segment.bytes`."""
    segment_ms: Annotated[int, Field(ge=1, le=_MAX)] | None = None
    """`segment.ms`."""
    producer_id_expiration_ms: Annotated[int, Field(ge=1)] | None = None
    """`producer.id.expiration.ms` of the brokers."""

    @model_validator(mode="after")
    def _something_is_set(self) -> Self:
        if not self.values:
            raise ValueError(f"{self.pattern!r}: sets nothing for these topics")
        return self

    @property
    def values(self) -> dict[str, Any]:
        return self.model_dump(exclude={"pattern"}, exclude_none=True)
