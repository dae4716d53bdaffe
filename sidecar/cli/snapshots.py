"""`snapshots rebuild|check|heal`: producer snapshots of a broker's directories."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.answering import JSON_VERSION, answering_json
from sidecar.cli.archiving import Excluded, Topics
from sidecar.cli.engines import Engine, EngineName, Master, Workers, spark_flags, task_engine
from sidecar.cli.options import GlobalOptions
from sidecar.errors import SettingsError

if TYPE_CHECKING:
    from sidecar.config import Settings
    from sidecar.discovery.topic_filter import TopicFilter
    from sidecar.pipeline.snapshots.folding import Forgetting
    from sidecar.pipeline.snapshots.targets import Targets
    from sidecar.ports import TaskEngine

NEVER = "never"

NO_ARCHIVE = "memory://none"
"""The settings demand an archive; these commands need none."""


Directories = Annotated[
    list[Path] | None,
    typer.Argument(metavar="DIR", help="A partition directory, a log directory, or several.", show_default=False),
]
FromArchive = Annotated[
    str | None, typer.Option("--archive", metavar="URL", help="Read this archive instead of directories.")
]
NowMs = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Leave out producers expired at this very moment (ms). Default: those expired when the newest batch was written.",
    ),
]
ExpirationMs = Annotated[
    str | None,
    typer.Option(
        metavar="N|never", help="The brokers' producer.id.expiration.ms. Default: broker.producer_id_expiration_ms."
    ),
]
CompactedElsewhere = Annotated[
    list[str] | None,
    typer.Option(
        "--compacted",
        metavar="REGEX",
        help="Topics compacted elsewhere (fetched from a leader that had compacted them, or restored): offsets may be missing in "
        "their logs. Repeatable. Default: where cleaner-offset-checkpoint names the partition, or is not there.",
        show_default=False,
    ),
]


@answering_json("snapshots_rebuild")
def rebuild(
    options: GlobalOptions,
    directory: Directories = None,
    *,
    out: Annotated[Path, typer.Option(metavar="OUT", help="Where the files go: a directory of your own.")],
    archive: FromArchive = None,
    now_ms: NowMs = None,
    producer_id_expiration_ms: ExpirationMs = None,
    engine: Engine = EngineName.AUTO,
    master: Master = None,
    workers: Workers = None,
    topic: Topics = None,
    exclude: Excluded = None,
    compacted: CompactedElsewhere = None,
) -> int:
    """Write the producer snapshot of every segment base above the first, by replaying the log.

    One partition directory gives OUT/<offset>.snapshot, anything else OUT/<topic>-<partition>/<offset>.snapshot.
    """
    settings = _settings(options, topic, exclude, archive, spark_flags(master, engine))
    from sidecar.cli.progress import ProgressDisplay
    from sidecar.cli.snapshot_tables import show_rebuilt
    from sidecar.pipeline.snapshots.rebuild import rebuild as replay

    targets = _targets(settings, directory, archive, compacted)
    forgetting = _forgetting(settings, now_ms, producer_id_expiration_ms)
    with (
        _engine(settings, engine, workers) as reader,
        ProgressDisplay(quiet=options.quiet, colors=options.colors) as progress,
    ):
        report = replay(targets, out, reader, forgetting, watcher=progress)
    if options.json:
        from sidecar.cli.output import print_json

        for partition in report.partitions:
            print_json({"kind": "snapshots_rebuild", "version": JSON_VERSION, **partition.to_json()})
    else:
        show_rebuilt(report, colors=options.colors)
    _tell(report.problems, targets.warnings)
    return report.exit_code


@answering_json("snapshots_check")
def check(
    options: GlobalOptions,
    directory: Directories = None,
    archive: FromArchive = None,
    now_ms: NowMs = None,
    producer_id_expiration_ms: ExpirationMs = None,
    engine: Engine = EngineName.AUTO,
    master: Master = None,
    workers: Workers = None,
    topic: Topics = None,
    exclude: Excluded = None,
    compacted: CompactedElsewhere = None,
) -> int:
    """Compare every producer snapshot found with the log; exit code 4 if one is wrong, 3 if one is missing or cannot be judged.

    In a log directory, Kafka's internal topics are passed over, as by heal; name a partition's directory to look at one.
    """
    settings = _settings(options, topic, exclude, archive, spark_flags(master, engine))
    from sidecar.cli.progress import ProgressDisplay
    from sidecar.cli.snapshot_tables import show_checked
    from sidecar.pipeline.snapshots.check import check as compare

    targets = _targets(settings, directory, archive, compacted)
    forgetting = _forgetting(settings, now_ms, producer_id_expiration_ms)
    with (
        _engine(settings, engine, workers) as reader,
        ProgressDisplay(quiet=options.quiet, colors=options.colors) as progress,
    ):
        report = compare(targets, reader, forgetting, watcher=progress)
    if options.json:
        from sidecar.cli.output import print_json

        for partition in report.partitions:
            print_json({"kind": "snapshots_check", "version": JSON_VERSION, **partition.to_json()})
    else:
        show_checked(report, colors=options.colors)
    _tell(report.problems, targets.warnings)
    return report.exit_code


@answering_json("snapshots_heal")
def heal(
    options: GlobalOptions,
    log_dir: Annotated[
        list[Path],
        typer.Argument(metavar="LOG_DIR...", help="The log directories of a stopped broker.", show_default=False),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what is missing, and write nothing; exit code 3 if anything is.")
    ] = False,
    replace_empty: Annotated[
        bool,
        typer.Option(
            "--replace-empty",
            help="Also replace empty snapshots that hide producers; the old file is kept as <name>.empty.",
        ),
    ] = False,
    replace_corrupt: Annotated[
        bool,
        typer.Option(
            "--replace-corrupt",
            help="Also replace files that are no snapshots; the old file is kept as <name>.corrupt.",
        ),
    ] = False,
    now_ms: NowMs = None,
    producer_id_expiration_ms: ExpirationMs = None,
    workers: Workers = None,
    topic: Topics = None,
    exclude: Excluded = None,
    compacted: CompactedElsewhere = None,
) -> int:
    """Create the producer snapshots that a stopped broker lacks, so that its own tiering works after the start.

    Only files named <base>.snapshot that do not exist are created, and one at the log's end where none would stand, with
    owner, group and mode of their .log. The broker's lock is held meanwhile: a broker that is started refuses to start. Safe
    to interrupt, and to run again. Snapshots that are there are compared with the log; exit code 4 if a wrong one is left.
    SIGTERM ends it with 143, and leaves no half-written file.
    """
    settings = _settings(options, topic, exclude)
    from sidecar.cli.progress import ProgressDisplay
    from sidecar.cli.snapshot_tables import show_healed
    from sidecar.clock import SystemClock
    from sidecar.pipeline.snapshots.heal import heal as give_snapshots

    forgetting = _forgetting(settings, now_ms, producer_id_expiration_ms)
    clock_ms = SystemClock().now_ms()
    if forgetting.now_ms > clock_ms:
        raise SettingsError(
            f"--now-ms {now_ms}: later than this machine's clock ({clock_ms}); producers that the broker still knows would be "
            f"left out"
        )
    with (
        _engine(settings, EngineName.LOCAL, workers) as reader,
        ProgressDisplay(quiet=options.quiet, colors=options.colors) as progress,
    ):
        report = give_snapshots(
            log_dir,
            _topics(settings),
            reader,
            forgetting,
            dry_run=dry_run,
            replace_empty=replace_empty,
            replace_corrupt=replace_corrupt,
            compacted_elsewhere=_compacted_elsewhere(compacted),
            watcher=progress,
        )
    if options.json:
        from sidecar.cli.output import print_json

        print_json(report.as_json())
    else:
        show_healed(report, colors=options.colors)
    _tell(report.problems, report.warnings)
    return report.exit_code


def _settings(
    options: GlobalOptions,
    topics: list[str] | None,
    excluded: list[str] | None,
    archive: str | None = None,
    spark: Mapping[str, Any] | None = None,
) -> Settings:
    flags = {"store.url": archive or NO_ARCHIVE, "topics.include": topics or None, "topics.exclude": excluded or None}
    return options.settings({**flags, **(spark or {})}, calm=True)


def _targets(
    settings: Settings, directories: list[Path] | None, archive: str | None, compacted: list[str] | None
) -> Targets:
    from sidecar.clock import SystemClock
    from sidecar.pipeline.snapshots.targets import archive_targets, find_targets

    if bool(directories) == bool(archive):
        raise SettingsError("name directories, or an archive by --archive: one of the two")
    if directories:
        return find_targets(directories, _topics(settings), compacted_elsewhere=_compacted_elsewhere(compacted))
    if compacted:
        raise SettingsError("--compacted: is for directories; an archive's commits tell of every segment")
    return archive_targets(settings.store, SystemClock(), _topics(settings))


def _topics(settings: Settings) -> TopicFilter:
    from sidecar.discovery.topic_filter import TopicFilter

    return TopicFilter(settings.topics.include, settings.topics.exclude)


def _compacted_elsewhere(patterns: list[str] | None) -> TopicFilter:
    from sidecar.discovery.topic_filter import TopicFilter

    return TopicFilter(tuple(patterns or ()))


def _forgetting(settings: Settings, now_ms: int | None, expiration: str | None) -> Forgetting:
    from sidecar.clock import SystemClock
    from sidecar.pipeline.snapshots.folding import Forgetting

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


def _engine(settings: Settings, name: EngineName, workers: int | None) -> AbstractContextManager[TaskEngine]:
    from sidecar.pipeline.snapshots.local_engine import PRELOADED

    return task_engine(settings, name, workers, [PRELOADED])


def _tell(problems: tuple[str, ...], warnings: tuple[str, ...]) -> None:
    from sidecar.cli.output import remark

    for warning in warnings:
        remark(f"warning: {warning}")
    for problem in problems:
        remark(f"problem: {problem}")
