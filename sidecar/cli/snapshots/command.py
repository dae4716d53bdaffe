"""`snapshots rebuild|check|heal`: producer snapshots of a broker's directories."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sidecar.cli.answering import answering_json
from sidecar.cli.archiving import Excluded, Topics
from sidecar.cli.engines.engines import Engine, Master, Workers, spark_flags
from sidecar.cli.options import GlobalOptions
from sidecar.cli.snapshots.work import (
    CompactedElsewhere,
    Directories,
    ExpirationMs,
    FromArchive,
    NowMs,
    ReplayOption,
    chosen_topics,
    producers_forgotten,
    reading,
    snapshot_settings,
    snapshot_targets,
    tell,
    told,
    topics_compacted_elsewhere,
)
from sidecar.errors import SettingsError
from sidecar.snapshots.replay_mode import Replay


@answering_json("snapshots_rebuild")
def rebuild(
    options: GlobalOptions,
    directory: Directories = None,
    *,
    out: Annotated[Path, typer.Option(metavar="OUT", help="Where the files go: a directory of your own.")],
    archive: FromArchive = None,
    now_ms: NowMs = None,
    producer_id_expiration_ms: ExpirationMs = None,
    replay: ReplayOption = Replay.WINDOW,
    engine: Engine = None,
    master: Master = None,
    workers: Workers = None,
    topic: Topics = None,
    exclude: Excluded = None,
    compacted: CompactedElsewhere = None,
) -> int:
    """Write the producer snapshot of every segment base above the first, by replaying the log.

    With --replay window, damage keeps only those snapshots from being written whose window it lies in; with full, all above it.
    One partition directory gives OUT/<offset>.snapshot, anything else OUT/<topic>-<partition>/<offset>.snapshot.
    """
    settings = snapshot_settings(options, topic, exclude, archive, spark_flags(master, engine))
    from sidecar.cli.snapshots.tables import show_rebuilt
    from sidecar.snapshots.rebuild import rebuild as rebuild_all

    targets = snapshot_targets(settings, directory, archive, compacted)
    forgetting = producers_forgotten(settings, now_ms, producer_id_expiration_ms)
    with reading(options, settings, workers, on_this_machine=archive is None) as (reader, progress):
        report = rebuild_all(targets, out, reader, forgetting, replay=replay, watcher=progress)
    show = partial(show_rebuilt, report, colors=options.colors)
    return told(options, "snapshots_rebuild", report, targets.warnings, show)


@answering_json("snapshots_check")
def check(
    options: GlobalOptions,
    directory: Directories = None,
    archive: FromArchive = None,
    now_ms: NowMs = None,
    producer_id_expiration_ms: ExpirationMs = None,
    engine: Engine = None,
    master: Master = None,
    workers: Workers = None,
    topic: Topics = None,
    exclude: Excluded = None,
    compacted: CompactedElsewhere = None,
) -> int:
    """Compare every producer snapshot found with the log; exit code 4 if one is wrong, 3 if one is missing or cannot be judged.

    In a log directory, Kafka's internal topics are passed over, as by heal; name a partition's directory to look at one.
    """
    settings = snapshot_settings(options, topic, exclude, archive, spark_flags(master, engine))
    from sidecar.cli.snapshots.tables import show_checked
    from sidecar.snapshots.check import check as compare

    targets = snapshot_targets(settings, directory, archive, compacted)
    forgetting = producers_forgotten(settings, now_ms, producer_id_expiration_ms)
    with reading(options, settings, workers, on_this_machine=archive is None) as (reader, progress):
        report = compare(targets, reader, forgetting, watcher=progress)
    show = partial(show_checked, report, colors=options.colors)
    return told(options, "snapshots_check", report, targets.warnings, show)


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
    replay: ReplayOption = Replay.WINDOW,
    engine: Engine = None,
    master: Master = None,
    workers: Workers = None,
    topic: Topics = None,
    exclude: Excluded = None,
    compacted: CompactedElsewhere = None,
) -> int:
    """Create the producer snapshots that a stopped broker lacks, so that its own tiering works after the start.

    Only files named <base>.snapshot that do not exist are created, and one at the log's end where none would stand, with
    owner, group and mode of their .log. The broker's lock is held meanwhile: a broker that is started refuses to start. Safe
    to interrupt, and to run again. Snapshots that the replay passes are compared with the log, with --replay full all of them;
    exit code 4 if a wrong one is left.
    SIGTERM ends it with 143, and leaves no half-written file.
    """
    settings = snapshot_settings(options, topic, exclude, spark=spark_flags(master, engine))
    from sidecar.cli.snapshots.tables import show_healed
    from sidecar.clock import SystemClock
    from sidecar.snapshots.heal import heal as give_snapshots

    forgetting = producers_forgotten(settings, now_ms, producer_id_expiration_ms)
    clock_ms = SystemClock().now_ms()
    if forgetting.now_ms > clock_ms:
        raise SettingsError(
            f"--now-ms {now_ms}: later than this machine's clock ({clock_ms}); producers that the broker still knows would be "
            f"left out"
        )
    with reading(options, settings, workers, on_this_machine=True) as (reader, progress):
        report = give_snapshots(
            log_dir,
            chosen_topics(settings),
            reader,
            forgetting,
            dry_run=dry_run,
            replace_empty=replace_empty,
            replace_corrupt=replace_corrupt,
            replay=replay,
            compacted_elsewhere=topics_compacted_elsewhere(compacted),
            watcher=progress,
        )
    if options.json:
        from sidecar.cli.output import print_json

        print_json(report.as_json())
    else:
        show_healed(report, colors=options.colors)
    tell(report.problems, report.warnings)
    return report.exit_code
