"""The reports of `snapshots` for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sidecar.cli.output import print_table, remark
from sidecar.snapshots.replay_mode import Replay

if TYPE_CHECKING:
    from sidecar.snapshots.check import CheckReport
    from sidecar.snapshots.heal_plan import Healing, HealReport
    from sidecar.snapshots.rebuild import RebuildReport

OFFSETS_SHOWN = 6
STARTS_SHOWN = 2


def show_rebuilt(report: RebuildReport, *, colors: bool) -> None:
    """One row per partition."""
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
    equal = 0
    for partition in report.partitions:
        name = str(partition.log.topic_partition)
        for snapshot in partition.snapshots:
            if snapshot.result == "equal":
                equal += 1
            else:
                rows.append((name, snapshot.offset, str(snapshot.result), snapshot.producers, snapshot.what))
        if partition.problem:
            rows.append((name, None, "stopped", None, partition.problem))
    if rows:
        columns = ["partition", "offset#", "result", "producers#", "what"]
        print_table("Producer snapshots that are not equal to the replay", columns, rows, colors=colors)
    remark(f"{equal} snapshots equal the replay of their log")
    if report.missing:
        remark(f"{report.missing} snapshots are missing: tiering fails there; stop the broker and run `snapshots heal`")


def show_healed(report: HealReport, *, colors: bool) -> None:
    """One row per partition in which something was missing or wrong."""
    rows = [
        (
            str(healing.plan.log.topic_partition),
            _offsets(healing.plan.missing),
            None if report.dry_run else len(healing.created),
            None if report.dry_run else len(healing.replaced),
            _starts(healing),
            len(healing.verified) if healing.replayed else None,
            healing.exact if healing.replayed else None,
            "; ".join(part for part in (healing.problem, *healing.mismatches, *_left(healing)) if part),
        )
        for healing in report.worth_showing
    ]
    if rows:
        title = "Missing producer snapshots (nothing was written)" if report.dry_run else "Healed producer snapshots"
        columns = [
            "partition",
            "missing",
            "created#",
            "replaced#",
            "replayed from",
            "broker's own confirmed#",
            "exact",
            "remarks",
        ]
        print_table(title, columns, rows, colors=colors)
    created = sum(len(healing.created) for healing in report.healings)
    replaced = sum(len(healing.replaced) for healing in report.healings)
    if report.dry_run:
        missing = sum(len(healing.plan.missing) for healing in report.healings)
        remark(f"{len(report.healings)} partitions looked at, {missing} snapshots missing; nothing was written")
    else:
        remark(f"{len(report.healings)} partitions looked at, {created} snapshots created, {replaced} replaced")
    not_compared = sum(len(healing.not_compared) for healing in report.healings)
    if not_compared and not report.dry_run:
        advice = "damage below keeps it" if report.replay is Replay.FULL else "--replay full compares all"
        remark(f"{not_compared} snapshots that are there were not compared with the log; {advice}")
    empty = sum(len(healing.empty_not_compared) for healing in report.healings)
    if empty and not report.dry_run and report.replay is Replay.WINDOW:
        remark(f"{empty} of these are empty, and wrong if a transaction is open there; --replace-empty compares them")
    read_bytes = sum(healing.read_bytes for healing in report.healings)
    if not report.dry_run:
        remark(f"{read_bytes / 1e6:.1f} MB of segments read (--replay {report.replay})")
    wrong = sum(len(healing.wrong_empty) for healing in report.healings)
    if wrong:
        remark(f"{wrong} empty snapshots hide producers whom a broker must know; --replace-empty replaces them")
    corrupt = sum(len(healing.corrupt) for healing in report.healings)
    if corrupt:
        remark(f"{corrupt} files are no snapshots, and no broker can read them; --replace-corrupt replaces them")


def _left(healing: Healing) -> Iterator[str]:
    if healing.wrong_empty:
        yield f"wrongly empty: {_offsets(healing.wrong_empty)}"
    if healing.corrupt:
        yield f"corrupt: {_offsets(healing.corrupt)}"
    if healing.plan.log_end in healing.created:
        yield f"made at the log's end {healing.plan.log_end}, as no snapshot was there"
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
