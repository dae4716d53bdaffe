"""Settings of compaction: which topics, by which rule, and when. Names and defaults are Kafka's where Kafka has them."""

import re
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from sidecar.compaction_strategy import OnUnkeyed, Strategy, header_name, strategy_of
from sidecar.config.topic_filter import Pattern
from sidecar.store_settings import MIB, Reloadable, Section

NEVER_MS = 2**63 - 1
DAY_MS = 86_400_000

_Strategy = Annotated[
    Strategy,
    BeforeValidator(lambda value: strategy_of(value) if isinstance(value, str) else value),
    WithJsonSchema({"enum": ["", *map(str, Strategy)], "type": "string"}),
]
_Ratio = Annotated[float, Field(ge=0, le=1)]
_Lag = Annotated[int, Field(ge=0, le=NEVER_MS)]
_MaxLag = Annotated[int, Field(ge=1, le=NEVER_MS)]
_SegmentBytes = Annotated[int, Field(ge=14, lt=2**31)]


class CompactionWhen(StrEnum):
    """Whether segments are archived as they are, or compacted first."""

    BEFORE_UPLOAD = "before_upload"
    AFTER_UPLOAD = "after_upload"


class CompactionPolicy(Section):
    """The values for one topic."""

    strategy: Reloadable[_Strategy] = Strategy.OFFSET
    """Which record of a key is retained. `offset` is Kafka's own rule; an empty value means `offset`."""
    header: Reloadable[str] = ""
    """For `header`: the name of the header that holds the version, 8 bytes. Without a name, settings with the
    strategy `header` are refused, unless `broker.connection` is set: then the topic's config may give one."""
    strict: Reloadable[bool] = False
    """For `header`: a malformed version stops the partition, instead of ranking its record lowest."""
    on_unkeyed: Reloadable[OnUnkeyed] = OnUnkeyed.DROP
    """Records without a key: `drop` them, as Kafka's cleaner does, or `refuse` to compact the partition."""
    exact_keys: Reloadable[bool] = False
    """Compare keys byte by byte, not by their keyed 128-bit hash."""
    when: Reloadable[CompactionWhen] = CompactionWhen.AFTER_UPLOAD
    """`after_upload`: segments are archived as they are, and replaced by compacted ones later. `before_upload`:
    segments are compacted together before their upload, unless they have waited for too long."""
    min_cleanable_dirty_ratio: Reloadable[_Ratio] = 0.5
    """`min.cleanable.dirty.ratio`: compact when more than this fraction of the compactable bytes is dirty."""
    min_compaction_lag_ms: Reloadable[_Lag] = 0
    """`min.compaction.lag.ms`: younger records are not compacted."""
    max_compaction_lag_ms: Reloadable[_MaxLag] = NEVER_MS
    """`max.compaction.lag.ms`: records of this age are compacted at any dirty ratio."""
    delete_retention_ms: Reloadable[_Lag] = DAY_MS
    """`delete.retention.ms`: how long tombstones and transaction markers are retained after the first compaction that
    could remove them."""
    segment_bytes: Reloadable[_SegmentBytes] = 1024 * MIB
    """`segment.bytes`: small results are joined up to this size."""
    ignore_cleanup_policy: Reloadable[bool] = False
    """Compact even if the topic's `cleanup.policy` on the broker lacks `compact`, so that the broker keeps every
    record."""
    keep_raw_ms: Reloadable[_Lag] = 0
    """How long the objects of segments that compaction replaced are kept beyond `gc.grace_period_ms`."""


class TopicCompaction(Section):
    """Topics to compact, and their own values. Values that are not set are those of `compaction`."""

    pattern: Pattern
    """Regular expression that must match the whole name of a topic. The first entry that matches applies."""
    strategy: _Strategy | None = None
    header: str | None = None
    strict: bool | None = None
    on_unkeyed: OnUnkeyed | None = None
    exact_keys: bool | None = None
    when: CompactionWhen | None = None
    min_cleanable_dirty_ratio: _Ratio | None = None
    min_compaction_lag_ms: _Lag | None = None
    max_compaction_lag_ms: _MaxLag | None = None
    delete_retention_ms: _Lag | None = None
    segment_bytes: _SegmentBytes | None = None
    ignore_cleanup_policy: bool | None = None
    keep_raw_ms: _Lag | None = None

    @model_validator(mode="before")
    @classmethod
    def _a_pattern_alone_is_an_entry(cls, value: Any) -> Any:
        return {"pattern": value} if isinstance(value, str) else value

    @property
    def overrides(self) -> dict[str, Any]:
        return self.model_dump(exclude={"pattern"}, exclude_none=True)


class CompactionSettings(CompactionPolicy):
    """Compaction of archived topics by `run`. Nothing is compacted unless `topics` names it."""

    enabled: Reloadable[bool] = True
    """`false`: nothing is compacted, whatever `topics` says."""
    topics: Reloadable[tuple[TopicCompaction, ...]] = ()
    """Topics to compact: patterns, or entries with a `pattern` and any of the settings above. The first match
    applies."""
    check_interval_s: Reloadable[Annotated[float, Field(gt=0, le=86_400)]] = 15.0
    """`log.cleaner.backoff.ms`: interval between two checks for partitions to compact."""
    max_job_bytes: Reloadable[Annotated[int, Field(ge=MIB)]] = 16_384 * MIB
    """Partitions are compacted together up to this size of logs. A larger one is compacted alone. Also the limit of
    compacted copies in `staging_dir` for `before_upload`."""
    max_staging_bytes: Reloadable[Annotated[int, Field(ge=MIB)] | None] = None
    """Limit of an archive compaction's work files in `staging_dir`, or in the store if a cluster does the work. A job
    writes in steps within this limit, and keeps copies of fetched segments in the rest. Files of data between two steps
    count, too. Default: `max_job_bytes`."""
    retry_wait_s: Reloadable[Annotated[float, Field(gt=0, le=86_400)]] = 60.0
    """How long a partition backs off after a failed compaction. Each further failure doubles it."""
    retry_wait_max_s: Reloadable[Annotated[float, Field(gt=0, le=604_800)]] = 3600.0
    """The longest backoff."""
    max_upload_delay_ms: Reloadable[Annotated[int, Field(ge=0, le=NEVER_MS)]] = 600_000
    """For `before_upload`: rolled segments wait this long to be compacted; then they are archived as they are. Keep it far
    below the topics' `retention.ms`."""
    staging_dir: Path | None = None
    """Directory for work files. `compact DIR` writes those of its result next to `--out`. Default: the system's directory for
    temporary files."""

    @model_validator(mode="after")
    def _settings_agree(self) -> Self:
        if self.retry_wait_max_s < self.retry_wait_s:
            raise ValueError(
                f"retry_wait_max_s {self.retry_wait_max_s:g} is less than retry_wait_s {self.retry_wait_s:g}"
            )
        patterns: set[str] = set()
        for entry in self.topics:
            if entry.pattern in patterns:
                raise ValueError(f"topics: the pattern {entry.pattern!r} appears twice; only the first would apply")
            patterns.add(entry.pattern)
            if contradiction := _contradiction(self._merged(entry), entry):
                raise ValueError(f"topics: {entry.pattern!r}: {contradiction}")
        uses_header = any(self._merged(entry).strategy is Strategy.HEADER for entry in self.topics)
        if self.topics and header_name(self.header) and not uses_header:
            raise ValueError(
                f"header {self.header!r} is set, but no topic has the strategy header: remove it, or set strategy: header"
            )
        return self

    @property
    def is_active(self) -> bool:
        return self.enabled and bool(self.topics)

    @property
    def unnamed_headers(self) -> dict[str, bool]:
        """By pattern of the entries with strategy `header` and no name of one: whether an empty name is written there or above."""
        merged = {entry.pattern: (entry.header, self._merged(entry)) for entry in self.topics}
        return {
            pattern: own is not None or "header" in self.model_fields_set
            for pattern, (own, policy) in merged.items()
            if policy.strategy is Strategy.HEADER and not header_name(policy.header)
        }

    @property
    def staging_path(self) -> Path:
        return Path(tempfile.gettempdir()) if self.staging_dir is None else self.staging_dir.expanduser()

    @property
    def staging_bytes(self) -> int:
        """`max_staging_bytes`, or where it is not set what a job may have."""
        return self.max_job_bytes if self.max_staging_bytes is None else self.max_staging_bytes

    def of_topic(self, topic: str) -> CompactionPolicy | None:
        """What holds for a topic, None if `run` does not compact it."""
        found = self.entry_of(topic) if self.enabled else None
        return None if found is None else self._merged(found)

    @property
    def policies(self) -> dict[str, CompactionPolicy]:
        """By pattern, what holds for topics that it matches; in the order of the entries."""
        return {entry.pattern: self._merged(entry) for entry in self.topics} if self.enabled else {}

    def entry_of(self, topic: str) -> TopicCompaction | None:
        """The entry that counts for a topic, None if no entry names it."""
        return next((entry for entry in self.topics if re.fullmatch(entry.pattern, topic)), None)

    def values_of(self, topic: str) -> CompactionPolicy:
        """The values for a topic, whether an entry names it and compaction is enabled or not."""
        return self._merged(self.entry_of(topic))

    def _merged(self, entry: TopicCompaction | None) -> CompactionPolicy:
        values = {name: getattr(self, name) for name in CompactionPolicy.model_fields}
        return CompactionPolicy.model_validate(values | (entry.overrides if entry is not None else {}))


def _contradiction(policy: CompactionPolicy, entry: TopicCompaction) -> str:
    """Why these values cannot all be meant, "" if they can."""
    is_header = policy.strategy is Strategy.HEADER
    for name in ("header", "strict"):
        if getattr(entry, name) and not is_header:
            return f"{name} is for strategy header, not {policy.strategy}"
    if policy.min_compaction_lag_ms > policy.max_compaction_lag_ms:
        return (
            f"min_compaction_lag_ms {policy.min_compaction_lag_ms} is more than max_compaction_lag_ms "
            f"{policy.max_compaction_lag_ms}: records would have to be compacted earlier than min_compaction_lag_ms "
            "allows"
        )
    return ""


class GarbageSettings(Section):
    """Deletion of objects that no reader can need: of segments that compaction replaced, and of abandoned uploads."""

    enabled: Reloadable[bool] = True
    """Whether `run` deletes such objects."""
    grace_period_ms: Reloadable[Annotated[int, Field(ge=0, le=NEVER_MS)]] = DAY_MS
    """How long an object is kept after the last commit stopped naming it. Must exceed the longest read and the longest
    upload."""
    interval_s: Reloadable[Annotated[float, Field(gt=0, le=604_800)]] = 3600.0
    """Interval between two gc tasks of `run`."""
