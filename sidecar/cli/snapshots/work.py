"""What the `snapshots` commands share: their options, the resulting work, and its report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.engines import Work, WorkKind, task_engine
from sidecar.cli.options import NO_ARCHIVE, GlobalOptions, is_chosen, require_commits, with_chosen
from sidecar.cli.output import ProgressDisplay, print_answer, remark
from sidecar.clock import SystemClock
from sidecar.errors import SettingsError
from sidecar.snapshots import Replay

if TYPE_CHECKING:
    from sidecar.config import Settings
    from sidecar.config.topic_filter import TopicFilter
    from sidecar.engine_ports import TaskEngine
    from sidecar.snapshots.check import CheckReport
    from sidecar.snapshots.jobs import Forgetting
    from sidecar.snapshots.rebuild import RebuildReport
    from sidecar.snapshots.resolve_paths import PartitionLog, Targets

NEVER = "never"

Directories = Annotated[
    list[Path] | None,
    typer.Argument(metavar="DIR", help="One or more partition directories or log directories.", show_default=False),
]
FromArchive = Annotated[
    str | None,
    typer.Option("--archive", metavar="URL", help="Read this archive instead of directories. store.url is not used."),
]
NowMs = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Omit producers that are expired at this time (ms). Default: at the timestamp of the newest batch.",
    ),
]
ExpirationMs = Annotated[
    str | None,
    typer.Option(
        metavar="N|never", help="The brokers' producer.id.expiration.ms. Default: broker.producer_id_expiration_ms."
    ),
]
ReplayOption = Annotated[
    Replay,
    typer.Option(
        "--replay",
        metavar="window|full",
        help="window: read only what the new snapshots need, from the newest trusted snapshot or the start of "
        "producer.id.expiration.ms. full: read the whole log, and compare it with every snapshot.",
    ),
]
CompactedElsewhere = Annotated[
    list[str] | None,
    typer.Option(
        "--compacted",
        metavar="REGEX",
        help="Topics compacted elsewhere (fetched from a leader that had compacted them, or restored): offsets may "
        "be missing in their logs. May be given several times. Default: topics of partitions that "
        "cleaner-offset-checkpoint names, and all if that file is missing.",
        show_default=False,
    ),
]


def snapshot_settings(
    options: GlobalOptions,
    topics: list[str] | None,
    excluded: list[str] | None,
    archive: str | None = None,
    spark: Mapping[str, Any] | None = None,
) -> Settings:
    """The settings, with flags over them; without `archive` there is none."""
    settings = options.settings({"store.url": archive or NO_ARCHIVE, **(spark or {})}, calm=True)
    return with_chosen(settings, topics, excluded)


def snapshot_targets(
    settings: Settings, directories: list[Path] | None, archive: str | None, compacted: list[str] | None
) -> Targets[PartitionLog]:
    """The partitions to process. Raises SettingsError unless exactly one of directories and archive is given.

    An archive without a commit of these topics is refused as elsewhere: see `require_commits`.
    """
    from sidecar.commits.lineages import find_all_lineages
    from sidecar.snapshots.resolve_paths import archive_targets, find_targets
    from sidecar.storage.opening import open_existing

    if bool(directories) == bool(archive):
        raise SettingsError("give either directories or --archive URL; store.url of the settings is not used here")
    if directories:
        return find_targets(
            directories, chosen_topics(settings), compacted_elsewhere=topics_compacted_elsewhere(compacted)
        )
    if compacted:
        raise SettingsError("--compacted is for directories; an archive's commits describe every segment")
    store = open_existing(settings.store)
    require_commits(store, settings, list(find_all_lineages(store, is_chosen(settings))))
    return archive_targets(settings.store, SystemClock(), chosen_topics(settings))


def chosen_topics(settings: Settings) -> TopicFilter:
    from sidecar.config.topic_filter import TopicFilter

    return TopicFilter(settings.topics.include, settings.topics.exclude)


def topics_compacted_elsewhere(patterns: list[str] | None) -> TopicFilter:
    from sidecar.config.topic_filter import TopicFilter

    return TopicFilter(tuple(patterns or ()), internal=True)


def producers_forgotten(settings: Settings, now_ms: int | None, expiration: str | None) -> Forgetting:
    """Which producers a broker would not remember. Raises SettingsError for an expiration that is none."""
    from sidecar.snapshots.jobs import Forgetting

    expiration_ms = settings.broker.producer_id_expiration_ms
    if expiration == NEVER:
        expiration_ms = None
    elif expiration is not None:
        if not expiration.isdecimal() or int(expiration) < 1:
            raise SettingsError(
                f"--producer-id-expiration-ms {expiration}: expected milliseconds, 1 or more, or '{NEVER}'"
            )
        expiration_ms = int(expiration)
    return Forgetting(SystemClock().now_ms() if now_ms is None else now_ms, expiration_ms, now_ms)


@contextmanager
def reading(
    options: GlobalOptions, settings: Settings, workers: int | None, *, on_this_machine: bool
) -> Iterator[tuple[TaskEngine, ProgressDisplay]]:
    """Who reads the segments, and who shows how far that is."""
    # Only a name or a cluster takes reading to Spark, whatever its size.
    work = Work(WorkKind.READING, 0, on_this_machine=on_this_machine)
    with (
        task_engine(settings, work, workers, ["sidecar.snapshots.preloaded"]) as engine,
        ProgressDisplay(quiet=options.quiet, colors=options.colors) as progress,
    ):
        yield engine, progress


def reported(
    options: GlobalOptions,
    kind: str,
    report: RebuildReport | CheckReport,
    warnings: tuple[str, ...],
    show: Callable[[], None],
) -> int:
    """Tell what came of it: a JSON object for each partition, or a table by `show`. Returns the exit code."""
    if options.json:
        for partition in report.partitions:
            print_answer(kind, partition.to_json())
    else:
        show()
    tell(report.problems, warnings)
    return report.exit_code


def tell(problems: tuple[str, ...], warnings: tuple[str, ...]) -> None:
    """On stderr, warnings first."""
    for warning in warnings:
        remark(f"warning: {warning}")
    for problem in problems:
        remark(f"problem: {problem}")
