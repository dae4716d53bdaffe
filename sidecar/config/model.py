"""The settings model. Names follow Kafka's where Kafka has one; every name of a quantity ends in its unit."""

import os
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from sidecar.archive.keys import CLUSTER_ID_RULE, is_cluster_id
from sidecar.config.broker_connection import BrokerConnectionSettings
from sidecar.config.compaction import CompactionSettings, GarbageSettings
from sidecar.config.spark import SparkSettings
from sidecar.config.topic_filter import Pattern, TopicFilter
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.store_settings import Reloadable, Section, StoreSettings

HTTP_PORT = 9308


class LogLevel(StrEnum):
    """The lowest level of events that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The format of a log line."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class BrokerSettings(Section):
    """The local broker: its log directories, and how the sidecar learns which partitions it leads."""

    log_dirs: tuple[Path, ...] = ()
    """The broker's `log.dirs`, as this process sees them. The sidecar only reads them. `backfill` and `run` need at
    least one."""
    assume_leader: bool = False
    """Archive partitions without a check that this broker leads them. For a stopped broker, a single broker, or a copy
    of its directories. With several replicas, use it only if no other sidecar archives the same partitions."""
    cluster_id: str | None = None
    """First element of every object key. Default: `cluster.id` in `meta.properties`; needed where that file has none."""
    broker_id: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Written into commits. Default: `node.id` or `broker.id` in `meta.properties`."""
    connection: BrokerConnectionSettings = BrokerConnectionSettings()
    """How to query the broker for leaders and last stable offsets."""
    settle_ms: Reloadable[Annotated[int, Field(ge=0, le=86_400_000)]] = 5_000
    """How long the files of a rolled segment must be unchanged, because a broker's recovery rewrites indexes in place.
    No effect with `broker.connection`: a broker recovers before it leads."""
    snapshot_grace_ms: Reloadable[Annotated[int, Field(ge=0, le=86_400_000)]] = 5_000
    """How long to wait for a missing producer snapshot: the broker writes it a moment after the new `.log`."""
    cleaner_stalled_after_s: Reloadable[Annotated[float, Field(gt=0, le=604_800)]] = 900.0
    """The broker's own log cleaner counts as stalled when a compacted partition is due, and its first dirty offset has
    not moved for this long. Must exceed the time to clean the largest partition."""
    producer_id_expiration_ms: Annotated[int, Field(ge=1)] | None = 604_800_000
    """How long brokers remember an idle producer; rebuilt snapshots omit producers that were idle for longer. If it is
    not set, `run` and `backfill` with a `connection` use the broker's value. Must not be less than the value of any
    broker: `producer.id.expiration.ms` (1 day by default), or `transactional.id.expiration.ms` (7 days) on brokers
    without it. A larger value is harmless. `null` keeps all producers."""

    @field_validator("cluster_id")
    @classmethod
    def _a_cluster_id_fits_an_object_key(cls, value: str | None) -> str | None:
        if value is not None and not is_cluster_id(value):
            raise ValueError(f"a cluster id is the first part of object keys: {CLUSTER_ID_RULE}")
        return value

    @model_validator(mode="after")
    def _leadership_is_either_asked_for_or_assumed(self) -> Self:
        if self.assume_leader and self.connection.is_configured:
            raise ValueError("assume_leader and connection.bootstrap_servers cannot both be set: remove one of them")
        return self


class TopicSettings(Section):
    """Which topics are archived. A pattern is a regular expression and must match the whole name."""

    include: Reloadable[tuple[Pattern, ...]] = (".*",)
    """Patterns of topics to archive."""
    exclude: Reloadable[tuple[Pattern, ...]] = ()
    """Patterns of topics to leave out. Overrides `include`."""
    internal: Reloadable[bool] = False
    """Archive topics whose name begins with `__` too. The cluster's own metadata log is never archived."""
    index_interval_bytes: Annotated[int, Field(ge=0, lt=2**31)] = 4096
    """The topics' `index.interval.bytes`: log bytes between two entries of a rebuilt index."""
    policies: Reloadable[tuple[TopicPolicySettings, ...]] = ()
    """Topic configs that override the broker's, or replace them without `broker.connection`. Entries with a `pattern`;
    the first match applies. `config show --topic` shows the effective values of a topic."""

    @property
    def filter(self) -> TopicFilter:
        return TopicFilter(self.include, self.exclude, self.internal)


class RunSettings(Section):
    """How `run` and `backfill` work: scans, parallel uploads, retries, local state."""

    scan_interval_s: Reloadable[Annotated[float, Field(gt=0, le=3600)]] = 30.0
    """Interval between two scans of the log directories. Keep it far below the topics' `retention.ms`."""
    watch: bool = True
    """Scan earlier when the file system reports a new file. Scans at `scan_interval_s` stay."""
    drain_timeout_s: Annotated[float, Field(ge=0, le=3600)] = 20.0
    """How long uploads in progress may take to finish after SIGTERM. Must be less than the pod's
    `terminationGracePeriodSeconds` (30 s by default)."""
    workers: Reloadable[Annotated[int, Field(ge=1, le=64)]] = 2
    """Segments processed in parallel, over all partitions. `store.s3.concurrency` limits the parts of uploads."""
    uploads_ahead: Reloadable[Annotated[int, Field(ge=1, le=64)]] = 3
    """Segments of one partition processed in parallel. Commits stay in offset order."""
    max_queue: Reloadable[Annotated[int, Field(ge=1, le=100_000)]] = 1_000
    """Segments that wait for upload at once, over all partitions. Those that do not fit wait for the next scan; they are
    pinned nevertheless."""
    retry_wait_s: Reloadable[Annotated[float, Field(ge=0, le=3600)]] = 60.0
    """How long a partition backs off after an error."""
    readers_per_disk: Annotated[int, Field(ge=1, le=64)] = 1
    """Segments read in parallel from one disk. Uploads do not count: they read from the page cache."""
    spare_page_cache: Reloadable[bool] = True
    """Drop the pages that only the sidecar brought into the page cache. Pages that were there before stay, because the
    broker may serve them. Works only as the owner of the files: the kernel does not show other users which pages were
    there."""
    pause_above_io_pressure_percent: Reloadable[Annotated[float, Field(gt=0, le=100)] | None] = None
    """Wait, up to a minute per segment, while the I/O pressure of this machine is above this (`some avg10` of
    /proc/pressure/io). Does not delay segments near their retention. Default: never wait."""
    record_lost: Reloadable[bool] = False
    """If offsets were deleted from disk before they were archived, record them as LOST in the archive and continue,
    instead of stopping the partition."""
    state_dir: Path = Path("~/.local/state/tiered-sidecar")
    """The sidecar's own directory, for the journal of uploads in progress. Its loss leaves orphaned objects in the
    store, and never loses data. One process at a time may use it. Each archive has a directory in it, the same for all
    spellings of `store.url`."""

    @property
    def state_path(self) -> Path:
        return self.state_dir.expanduser()


class HttpSettings(Section):
    """The read-only HTTP server of `run`: the status page at /, and /metrics, /healthz, /readyz, /status."""

    bind: str | None = f"127.0.0.1:{HTTP_PORT}"
    """Address and port, `[::1]:9308` for IPv6, port 0 for any free one, `null` for no server. Scrapers and probes from
    outside the pod need `0.0.0.0:9308`. It serves no secrets; `token_file` restricts access to it."""
    token_file: Path | None = None
    """File with a token of 16 to 4096 bytes, which every request except `/healthz` needs. Send it as `Authorization:
    Bearer`, or in a browser as the password of any user. The file is read for each request. Default: no
    authentication."""
    heartbeat_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """`/healthz` fails when the main loop has made no progress for this long."""
    request_timeout_s: Annotated[float, Field(gt=0, le=300)] = 5.0
    """How long a client may take to send its request or to read its answer."""
    max_connections: Annotated[int, Field(ge=1, le=1024)] = 16
    """Clients served in parallel. Four times as many may wait, more are refused. `/healthz` is always answered."""

    @field_validator("bind")
    @classmethod
    def _bind_is_an_address_and_a_port(cls, value: str | None) -> str | None:
        if value is not None:
            split_address(value)
        return value

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port, None for no server."""
        return None if self.bind is None else split_address(self.bind)


def split_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port` or `[v6]:port`. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError(f"{text!r} is not an address and port such as 127.0.0.1:{HTTP_PORT}")
    if not host:
        raise ValueError(
            f"{text!r} has no address: write 0.0.0.0:{port} for all interfaces, 127.0.0.1:{port} for this machine only"
        )
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if ":" in host:
        raise ValueError(f"{text!r}: write an IPv6 address in brackets, such as [::1]:{HTTP_PORT}")
    return host, int(port)


class LogSettings(Section):
    """Logs go to stderr, one line per event. They never contain credentials or record contents."""

    level: Reloadable[LogLevel] = LogLevel.INFO
    """The lowest level of events that are logged."""
    format: LogFormat = LogFormat.AUTO
    """`auto` is `console` on a terminal and `json` elsewhere."""


class Settings(Section):
    """Everything an operator may set. An option overrides the environment, which overrides the file, which overrides the
    default."""

    store: StoreSettings
    """Where the archive is, and how to talk to it."""
    broker: BrokerSettings = BrokerSettings()
    """The local broker: its log directories, and how the sidecar learns which partitions it leads."""
    topics: TopicSettings = TopicSettings()
    """Which topics are archived."""
    compaction: CompactionSettings = CompactionSettings()
    """Compaction of archived topics by `run`. Nothing is compacted unless `compaction.topics` names it."""
    gc: GarbageSettings = GarbageSettings()
    """Deletion of objects that no reader can need: of segments that compaction replaced, and of abandoned uploads."""
    run: RunSettings = RunSettings()
    """How `run` and `backfill` work: scans, parallel uploads, retries, local state."""
    spark: SparkSettings = SparkSettings()
    """Apache Spark, for work on many segments at once."""
    http: HttpSettings = HttpSettings()
    """The read-only HTTP server of `run`."""
    log: LogSettings = LogSettings()
    """Logs on stderr."""

    @model_validator(mode="after")
    def _directories_do_not_lie_in_each_other(self) -> Self:
        staging_dir = self.compaction.staging_dir
        try:
            archive, state_dir = self.store.directory, self.run.state_path
            staging_dir = staging_dir and staging_dir.expanduser()
        except RuntimeError as error:
            raise ValueError(
                f"store.url {self.store.url} or run.state_dir {self.run.state_dir}: the home directory for ~ is unknown"
            ) from error
        log_dirs = {
            path: f"broker's log dir {path}, to which the sidecar never writes" for path in self.broker.log_dirs
        }
        archives = {archive: f"archive {self.store.url}"} if archive else {}
        state = {state_dir: f"sidecar's own directory run.state_dir {state_dir}"}
        for name, path, others in (
            ("run.state_dir", state_dir, archives),
            ("compaction.staging_dir", staging_dir, archives),
            ("store.url", archive, state),
        ):
            for other, what in {**log_dirs, **others}.items():
                # Unlike Path.resolve, realpath raises nothing for links in a circle and for directories without permission.
                if path and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(other)):
                    raise ValueError(f"{name} {path} is in the {what}: set another directory")
        return self

    @model_validator(mode="after")
    def _version_headers_are_named(self) -> Self:
        for pattern, is_written_empty in self.compaction.unnamed_headers.items():
            if is_written_empty or not self.broker.connection.bootstrap_servers:
                raise ValueError(
                    f"compaction.topics: {pattern!r}: strategy header needs the name of a header: set header in the entry, "
                    "or strategy offset"
                )
        return self

    @model_validator(mode="after")
    def _compacted_topics_are_archived(self) -> Self:
        for entry in self.compaction.topics:
            name = entry.pattern.replace("\\.", ".")
            if re.fullmatch(r"[A-Za-z0-9._-]+", name) and not self.topics.filter.accepts(name):
                raise ValueError(
                    f"compaction.topics names {name}, which topics.include, topics.exclude and topics.internal exclude"
                )
        return self
