"""`snapshots rebuild|check|heal`: producer snapshots of a broker's directories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli.archiving import Excluded, Topics
from sidecar.cli.engines import Engine, Master, Workers, spark_flags
from sidecar.cli.options import GlobalOptions
from sidecar.cli.output import print_json, print_table, remark
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
    reported,
    snapshot_settings,
    snapshot_targets,
    tell,
    topics_compacted_elsewhere,
)
from sidecar.clock import SystemClock
from sidecar.errors import SettingsError
from sidecar.plurals import plural
from sidecar.snapshots import Replay

if TYPE_CHECKING:
    from sidecar.snapshots.check import CheckReport
    from sidecar.snapshots.heal_plan import Healing, HealReport
    from sidecar.snapshots.rebuild import RebuildReport


def rebuild(
    options: GlobalOptions,
    directory: Directories = None,
    *,
    out: Annotated[Path, typer.Option(metavar="OUT", help="Output directory.")],
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
    """Replay the log, and write the producer snapshot of every segment except the first. After damage in the log,
    --replay window omits only the snapshots whose window contains it; --replay full omits all above it. One partition
    directory gives OUT/<offset>.snapshot, anything else OUT/<topic>-<partition>/<offset>.snapshot. Exit code 3 if a
    partition is left out or incomplete, for example because the archive has topics of its name from several clusters.
    """
    settings = snapshot_settings(options, topic, exclude, archive, spark_flags(master, engine))
    from sidecar.snapshots.rebuild import rebuild as rebuild_all

    targets = snapshot_targets(settings, directory, archive, compacted)
    forgetting = producers_forgotten(settings, now_ms, producer_id_expiration_ms)
    with reading(options, settings, workers, on_this_machine=archive is None) as (reader, progress):
        report = rebuild_all(targets, out, reader, forgetting, replay=replay, watcher=progress)
    show = partial(show_rebuilt, report, colors=options.colors)
    return reported(options, "snapshots_rebuild", report, targets.warnings, show)


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
    """Compare every producer snapshot with the log. Exit code 4 if one is wrong, 3 if one is missing or cannot be
    compared. In a log directory, Kafka's internal topics are skipped, as by heal; give a partition's directory to check
    one.
    """
    settings = snapshot_settings(options, topic, exclude, archive, spark_flags(master, engine))
    from sidecar.snapshots.check import check as compare

    targets = snapshot_targets(settings, directory, archive, compacted)
    forgetting = producers_forgotten(settings, now_ms, producer_id_expiration_ms)
    with reading(options, settings, workers, on_this_machine=archive is None) as (reader, progress):
        report = compare(targets, reader, forgetting, watcher=progress)
    show = partial(show_checked, report, colors=options.colors)
    return reported(options, "snapshots_check", report, targets.warnings, show)


def heal(
    options: GlobalOptions,
    log_dir: Annotated[
        list[Path],
        typer.Argument(metavar="LOG_DIR...", help="The log directories of a stopped broker.", show_default=False),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List missing snapshots; write nothing. Exit code 3 if any is missing.")
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
            help="Also replace corrupt snapshot files; the old file is kept as <name>.corrupt.",
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
    """Create the producer snapshots that a stopped broker lacks, so that its own tiering works after the start. It
    creates only missing <base>.snapshot files, and one at the log's end if a partition would have none, with owner,
    group and mode of their .log. It locks the log directories, so a broker refuses to start until it ends. Safe to
    interrupt, and to run again. The replay compares the snapshots that it passes with the log, with --replay full all
    of them. Exit code 4 if a wrong one remains. SIGTERM ends it with 143, and leaves no half-written file.
    """
    settings = snapshot_settings(options, topic, exclude, spark=spark_flags(master, engine))
    from sidecar.snapshots.heal import heal as give_snapshots

    forgetting = producers_forgotten(settings, now_ms, producer_id_expiration_ms)
    clock_ms = SystemClock().now_ms()
    if forgetting.now_ms > clock_ms:
        raise SettingsError(
            f"--now-ms {now_ms}: later than this machine's clock ({clock_ms}); producers that the broker still "
            "knows would be missing from the snapshots"
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
        print_json(report.as_json())
    else:
        show_healed(report, colors=options.colors)
    tell(report.problems, report.warnings)
    return report.exit_code


OFFSETS_SHOWN = 6
STARTS_SHOWN = 2


def show_rebuilt(report: RebuildReport, *, colors: bool) -> None:
    rows = [
        (
            str(partition.log.topic_partition),
            partition.start_offset,
            "broker's snapshot" if partition.from_snapshot else "log",
            len(partition.snapshots),
            partition.snapshots[-1].producers if partition.snapshots else None,
            all(snapshot.exact for snapshot in partition.snapshots),
            partition.problem,
        )
        for partition in report.partitions
    ]
    columns = ["partition", "replayed from#", "known there", "snapshots#", "producers at the end#", "exact", "problem"]
    print_table("Rebuilt producer snapshots", columns, rows, colors=colors)


def show_checked(report: CheckReport, *, colors: bool) -> None:
    """One row per snapshot that is not equal, and a count of those that are."""
    rows: list[tuple[str, int | None, str, int | None, str]] = []
    equal = existing = 0
    for partition in report.partitions:
        name = str(partition.log.topic_partition)
        for snapshot in partition.snapshots:
            existing += snapshot.result != "missing"
            if snapshot.result == "equal":
                equal += 1
            else:
                rows.append((name, snapshot.offset, str(snapshot.result), snapshot.producers, snapshot.what))
        if partition.problem:
            rows.append((name, None, "stopped", None, partition.problem))
    if rows:
        columns = ["partition", "offset#", "result", "producers#", "what"]
        print_table("Producer snapshots that are not equal to the replay", columns, rows, colors=colors)
    of_all = "" if equal == existing else f" (of {existing} that exist)"
    remark(plural(equal, "snapshot equals the replay of its log", "snapshots equal the replay of their log") + of_all)
    if report.missing:
        remark(
            f"{plural(report.missing, 'snapshot is', 'snapshots are')} missing: tiering fails there; stop the "
            "broker and run `snapshots heal`"
        )


def show_healed(report: HealReport, *, colors: bool) -> None:
    """One row per partition in which something was missing or wrong; below, what a person should know of it."""
    rows = [
        (
            str(healing.plan.log.topic_partition),
            _offsets(healing.plan.missing),
            None if report.dry_run else len(healing.created),
            None if report.dry_run else len(healing.replaced),
            _starts(healing) or None,
            len(healing.verified) if healing.replayed else None,
            healing.exact if healing.replayed else None,
        )
        for healing in report.worth_showing
    ]
    if rows:
        title = "Missing producer snapshots (nothing was written)" if report.dry_run else "Healed producer snapshots"
        columns = ["partition", "missing", "created#", "replaced#", "replayed from", "broker's own confirmed#", "exact"]
        print_table(title, columns, rows, colors=colors)
    for healing in report.worth_showing:
        for text in filter(None, (healing.problem, *healing.mismatches, *_left(healing))):
            remark(f"{healing.plan.log.topic_partition}: {text}")
    created = sum(len(healing.created) for healing in report.healings)
    replaced = sum(len(healing.replaced) for healing in report.healings)
    if report.dry_run:
        missing = sum(len(healing.plan.missing) for healing in report.healings)
        remark(
            f"{plural(len(report.healings), 'partition')} checked, {plural(missing, 'snapshot')} missing; nothing was written"
        )
    else:
        remark(
            f"{plural(len(report.healings), 'partition')} checked, {plural(created, 'snapshot')} created, {replaced} replaced"
        )
    not_compared = sum(len(healing.not_compared) for healing in report.healings)
    if not_compared and not report.dry_run:
        advice = "damage below prevents it" if report.replay is Replay.FULL else "--replay full compares all"
        remark(
            f"{plural(not_compared, 'existing snapshot was', 'existing snapshots were')} not compared with the log; {advice}"
        )
    empty = sum(len(healing.empty_not_compared) for healing in report.healings)
    if empty and not report.dry_run and report.replay is Replay.WINDOW:
        remark(
            f"{plural(empty, 'of these is', 'of these are')} empty, and wrong if a transaction is open there; "
            "--replace-empty compares them"
        )
    read_bytes = sum(healing.read_bytes for healing in report.healings)
    if not report.dry_run:
        remark(f"{read_bytes / 1e6:.1f} MB of segments read (--replay {report.replay})")
    wrong = sum(len(healing.wrong_empty) for healing in report.healings)
    if wrong:
        remark(
            f"{plural(wrong, 'empty snapshot hides', 'empty snapshots hide')} producers that a broker must know; "
            "--replace-empty replaces such snapshots"
        )
    corrupt = sum(len(healing.corrupt) for healing in report.healings)
    if corrupt:
        remark(
            f"{plural(corrupt, 'snapshot file is', 'snapshot files are')} corrupt; --replace-corrupt replaces such files"
        )


def _left(healing: Healing) -> Iterator[str]:
    if healing.wrong_empty:
        yield f"wrongly empty: {_offsets(healing.wrong_empty)}"
    if healing.corrupt:
        yield f"corrupt: {_offsets(healing.corrupt)}"
    if healing.plan.log_end in healing.created:
        yield f"created at the log's end {healing.plan.log_end}, where there was no snapshot"
    if healing.plan.missing or healing.plan.bare:
        yield healing.note


def _starts(healing: Healing) -> str:
    starts = [f"{start.offset} ({start.kind})" for start in healing.starts]
    return " ".join(starts[:STARTS_SHOWN]) + (
        f" and {len(starts) - STARTS_SHOWN} more" if len(starts) > STARTS_SHOWN else ""
    )


def _offsets(offsets: Sequence[int]) -> str:
    shown = " ".join(map(str, offsets[:OFFSETS_SHOWN]))
    return f"{shown} and {len(offsets) - OFFSETS_SHOWN} more" if len(offsets) > OFFSETS_SHOWN else shown
