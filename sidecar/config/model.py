"""The settings model. Names follow Kafka's where Kafka has one; every name of a quantity ends in its unit."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import unquote, urlsplit

from pydantic import Field, field_validator, model_validator

from sidecar.config.broker_connection import BrokerConnectionSettings
from sidecar.config.compaction import CompactionSettings, GarbageSettings
from sidecar.config.section import Pattern, Section
from sidecar.config.spark import SparkSettings
from sidecar.config.topic_policy import TopicPolicySettings
from sidecar.model import EngineName
from sidecar.store_settings import Reloadable, StoreSettings

HTTP_PORT = 9308


class LogLevel(StrEnum):
    """The least severe events that are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a log line looks."""

    AUTO = "auto"
    JSON = "json"
    CONSOLE = "console"


class BrokerSettings(Section):
    """The broker beside which we run, and how far its files are believed."""

    log_dirs: tuple[Path, ...] = ()
    """The broker's `log.dirs`, as this process sees them. Only ever read. `backfill` and `run` need at least one."""
    assume_leader: bool = False
    """Archive partitions although nothing says that this broker leads them. For a stopped broker, a single broker, or a
    copy of its directories; with several replicas, only where no other sidecar archives the same partitions."""
    cluster_id: str | None = None
    """First element of every object key. Default: `cluster.id` in `meta.properties`; needed where that file has none."""
    broker_id: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Written into commits. Default: `node.id` or `broker.id` in `meta.properties`."""
    connection: BrokerConnectionSettings = BrokerConnectionSettings()
    """How to ask the broker what it leads and what is stable there."""
    settle_ms: Reloadable[Annotated[int, Field(ge=0, le=86_400_000)]] = 5_000
    """How long the files of a rolled segment must have been left alone: recovery at a broker's start rewrites indexes in
    place. Without effect where the leader itself is asked (`broker.connection`): it recovers before it leads."""
    snapshot_grace_ms: Reloadable[Annotated[int, Field(ge=0, le=86_400_000)]] = 5_000
    """How long a producer snapshot that is not there may still come: a roll writes it a moment after the new `.log`."""
    cleaner_stalled_after_s: Reloadable[Annotated[float, Field(gt=0, le=604_800)]] = 900.0
    """When the broker's own cleaner counts as stalled: a compacted partition is due, and its first dirty offset has not moved
    for so long. More than the cleaning of the largest partition takes."""
    producer_id_expiration_ms: Annotated[int, Field(ge=1)] | None = 604_800_000
    """How long brokers remember an idle producer; rebuilt snapshots leave out those that were idle for longer. Where it is not set,
    `run` and `backfill` with a `connection` go by what the broker says. Never less
    than what any broker uses: `producer.id.expiration.ms` (1 day by default) or, on brokers that do not have it yet,
    `transactional.id.expiration.ms` (7 days). More is harmless. `null` leaves out nobody."""

    @field_validator("cluster_id")
    @classmethod
    def _a_cluster_id_fits_an_object_key(cls, value: str | None) -> str | None:
        if value is not None and (not re.fullmatch(r"[A-Za-z0-9._-]+", value) or value in {".", ".."}):
            raise ValueError("a cluster id has letters, digits, '.', '_' and '-' only")
        return value

    @model_validator(mode="after")
    def _leadership_is_either_asked_for_or_assumed(self) -> Self:
        if self.assume_leader and self.connection.is_configured:
            raise ValueError("assume_leader and connection.bootstrap_servers exclude each other: remove one of them")
        return self


class TopicSettings(Section):
    """Which topics are archived. A pattern is a regular expression and must match the whole name."""

    include: Reloadable[tuple[Pattern, ...]] = (".*",)
    """Patterns of topics to archive."""
    exclude: Reloadable[tuple[Pattern, ...]] = ()
    """Patterns of topics to leave out; stronger than `include`."""
    internal: Reloadable[bool] = False
    """Also topics whose name begins with `__`. The cluster's own metadata log is never archived."""
    index_interval_bytes: Annotated[int, Field(ge=0, lt=2**31)] = 4096
    """The topics' `index.interval.bytes`: log bytes between two entries of an index that has to be rebuilt."""
    policies: Reloadable[tuple[TopicPolicySettings, ...]] = ()
    """Configurations of topics that are to be believed instead of the broker's, or where no broker is asked. Entries with a
    `pattern`; the first match counts. `config show --topic` tells what holds for a topic."""

    def accepts(self, topic: str) -> bool:
        included = any(re.fullmatch(pattern, topic) for pattern in self.include)
        excluded = any(re.fullmatch(pattern, topic) for pattern in self.exclude)
        return included and not excluded and (self.internal or not topic.startswith("__"))


class RunSettings(Section):
    """How the work is done."""

    scan_interval_s: Reloadable[Annotated[float, Field(gt=0, le=3600)]] = 30.0
    """Between two listings of the log directories. Short beside the topics' `retention.ms`."""
    watch: bool = True
    """Look sooner when the file system reports a new file. The interval holds in any case."""
    drain_timeout_s: Annotated[float, Field(ge=0, le=3600)] = 20.0
    """After SIGTERM, how long segments in work may take to finish. Below the pod's `terminationGracePeriodSeconds`
    (30 s by default)."""
    workers: Reloadable[Annotated[int, Field(ge=1, le=64)]] = 2
    """Segments in work at once, over all partitions. Parts of one upload are `store.s3.concurrency`."""
    uploads_ahead: Reloadable[Annotated[int, Field(ge=1, le=64)]] = 3
    """Segments of one partition in work at once. Commits stay in offset order."""
    max_queue: Reloadable[Annotated[int, Field(ge=1, le=100_000)]] = 1_000
    """Segments that wait for upload at once, over all partitions. Those that do not fit wait for the next scan; they are
    pinned nevertheless."""
    retry_wait_s: Reloadable[Annotated[float, Field(ge=0, le=3600)]] = 60.0
    """How long a partition rests after an error before it is tried again."""
    readers_per_disk: Annotated[int, Field(ge=1, le=64)] = 1
    """Segments read at once from one disk. What is being uploaded does not count: it comes from the page cache."""
    spare_page_cache: Reloadable[bool] = True
    """Give back to the kernel what only we brought into the page cache; what was there before, and may be what the broker
    serves, stays. Needs to run as the owner of the files: others are not told what was there."""
    pause_above_io_pressure_percent: Reloadable[Annotated[float, Field(gt=0, le=100)] | None] = None
    """Wait, up to a minute per segment, while tasks of this machine waited for disks for a larger part of the last ten seconds
    (`some avg10` of /proc/pressure/io). Not where retention is near. Default: never."""
    record_lost: Reloadable[bool] = False
    """Where offsets are gone from disk before they were archived: record them as LOST in the archive and go on, instead
    of stopping the partition."""
    state_dir: Path = Path("~/.local/state/tiered-sidecar")
    """Directory of our own, for the journal of uploads in progress: losing it costs orphaned objects, never data. One
    process at a time may use it."""

    @property
    def state_path(self) -> Path:
        """`state_dir` with the home directory put in for `~`."""
        return self.state_dir.expanduser()


class HttpSettings(Section):
    """The read-only HTTP server of `run`: the status page at /, and /metrics, /healthz, /readyz, /status."""

    bind: str | None = f"127.0.0.1:{HTTP_PORT}"
    """Address and port, `[::1]:9308` for IPv6, port 0 for any free one, `null` for no server. Scrapers and probes from
    outside the pod need `0.0.0.0:9308`. There is nothing secret on it; `token_file` keeps it from others all the same."""
    token_file: Path | None = None
    """File with a token of 16 to 4096 bytes, without which only `/healthz` is answered: as `Authorization: Bearer`, or as the
    password of any user, which is what browsers ask for. Read anew for each request. Default: everybody may look."""
    heartbeat_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """`/healthz` fails when the main loop has made no progress for this long."""
    request_timeout_s: Annotated[float, Field(gt=0, le=300)] = 5.0
    """How long a client may take to send its request or to take its answer."""
    max_connections: Annotated[int, Field(ge=1, le=1024)] = 16
    """Clients served at once; four times as many may wait for their turn, more are turned away. `/healthz` is always answered."""

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
        raise ValueError(f"{text!r} is no address and port such as 127.0.0.1:{HTTP_PORT}")
    if not host:
        raise ValueError(
            f"{text!r} names no address: 0.0.0.0:{port} is all interfaces, 127.0.0.1:{port} this machine only"
        )
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], int(port)
    if ":" in host:
        raise ValueError(f"{text!r}: write an IPv6 address in brackets, such as [::1]:{HTTP_PORT}")
    return host, int(port)


class LogSettings(Section):
    """Logs go to stderr, one line per event. They never hold credentials or record contents."""

    level: Reloadable[LogLevel] = LogLevel.INFO
    """The least severe events that are written."""
    format: LogFormat = LogFormat.AUTO
    """`auto` is `console` on a terminal and `json` elsewhere."""


class Settings(Section):
    """Everything an operator may set. A flag wins over the environment, that over the file, that over the default."""

    store: StoreSettings
    """Where the archive is, and how to talk to it."""
    broker: BrokerSettings = BrokerSettings()
    """The broker beside which we run, and how far its files are believed."""
    topics: TopicSettings = TopicSettings()
    """Which topics are archived."""
    compaction: CompactionSettings = CompactionSettings()
    """Compaction of archived topics by `run`. Nothing is compacted unless `compaction.topics` names it."""
    gc: GarbageSettings = GarbageSettings()
    """Objects that no reader can need any more: of segments that compaction replaced, and of uploads that were given up."""
    run: RunSettings = RunSettings()
    """How the work is done."""
    spark: SparkSettings = SparkSettings()
    """Apache Spark, for work on many segments at once."""
    http: HttpSettings = HttpSettings()
    """The read-only HTTP server of `run`."""
    log: LogSettings = LogSettings()
    """Logs on stderr."""

    @property
    def compaction_engine(self) -> EngineName:
        """Where `run` compacts: as `spark.engine` says, unless the deprecated `compaction.engine` is set."""
        return self.compaction.engine or self.spark.engine

    @model_validator(mode="after")
    def _nothing_of_ours_lies_in_a_log_dir(self) -> Self:
        try:
            ours = {"run.state_dir": self.run.state_path}
            if self.compaction.staging_dir is not None:
                ours["compaction.staging_dir"] = self.compaction.staging_dir.expanduser()
            archive = urlsplit(self.store.url)
            if "://" not in self.store.url:
                ours["store.url"] = Path(self.store.url).expanduser()
        except RuntimeError as error:
            raise ValueError(
                f"store.url {self.store.url} or run.state_dir {self.run.state_dir}: ~ stands for a home directory that is not known"
            ) from error
        if "://" in self.store.url and archive.scheme in {"file", "local"}:
            ours["store.url"] = Path(unquote(archive.path))
        for name, path in ours.items():
            for log_dir in self.broker.log_dirs:
                # Unlike Path.resolve, realpath raises nothing for links in a circle and for what may not be looked into.
                if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(log_dir)):
                    raise ValueError(f"{name} {path} lies in the broker's log dir {log_dir}, which is never written to")
        return self

    @model_validator(mode="after")
    def _compacted_topics_are_archived(self) -> Self:
        for entry in self.compaction.topics:
            name = entry.pattern.replace("\\.", ".")
            if re.fullmatch(r"[A-Za-z0-9._-]+", name) and not self.topics.accepts(name):
                raise ValueError(
                    f"compaction.topics names {name}, which topics.include, topics.exclude and topics.internal exclude"
                )
        return self
