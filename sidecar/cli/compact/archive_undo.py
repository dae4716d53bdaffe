"""`compact --archive --undo`: the segments that the newest compaction replaced, live again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.cli.options import GlobalOptions
from sidecar.cli.output import print_json, print_table, remark, size, utc

if TYPE_CHECKING:
    from sidecar.archive.replacement import Obstacle
    from sidecar.config import Settings

JSON_VERSION = 1


def undo_archive(options: GlobalOptions, settings: Settings, partitions: frozenset[int], *, dry_run: bool) -> int:
    """Undo the newest compaction of the chosen partitions, one commit each. 0, or the exit code of the worst failure.

    Args:
        partitions: only these; empty for all of the chosen topics.
    """
    from sidecar.cli.options import is_chosen, require_chosen
    from sidecar.clock import SystemClock
    from sidecar.commits.lineages import find_all_lineages
    from sidecar.compactor.archive.undo import Undone, undo_compaction
    from sidecar.errors import SettingsError, SidecarError
    from sidecar.reporting.advice import advised
    from sidecar.storage import open_existing

    store, code = open_existing(settings.store), 0
    lineages = find_all_lineages(store, is_chosen(settings))
    if not lineages:
        require_chosen(store, settings)
        remark("nothing is archived there: nothing to undo")
        return 0
    if partitions:
        lineages = tuple(found for found in lineages if found.topic_partition.partition in partitions)
    if not lineages:
        raise SettingsError(f"--partition {' '.join(map(str, sorted(partitions)))}: the archive has none of these")
    rows: list[tuple[object, ...]] = []
    remarks: list[str] = []
    for lineage in lineages:
        name = lineage.topic_partition
        problem, undone = None, Undone()
        try:
            undone = undo_compaction(store, lineage.root, SystemClock(), dry_run=dry_run)
        except SidecarError as error:
            problem, code = advised(error), max(code, error.exit_code)
            remarks.append(f"{name}: {problem}")
        else:
            if undone.obstacle is not None:
                remarks.append(f"{name}: {reason_of(undone.obstacle, settings.gc.grace_period_ms)}")
        found = undone.to_json()
        if options.json:
            place = {"cluster_id": lineage.cluster_id, "topic": name.topic, "partition": name.partition}
            place["incarnation"] = lineage.incarnation
            print_json({"kind": "compaction_undo", "version": JSON_VERSION, **place, **found, "problem": problem})
        done = "failed" if problem else "would be" if dry_run and undone.replacement else found["commit"]
        figures = (found["segments_removed"], found["segments_live_again"], size(found["bytes_live_again"]))
        rows.append((str(name), found["undone_commit"], *((None,) * len(figures) if problem else figures), done))
    if options.json:
        return code
    columns = ["partition", "undone commit#", "segments removed#", "live again#", "size live again#", "commit#"]
    print_table("Undone compactions", columns, rows, colors=options.colors)
    for text in remarks:
        remark(text)
    return code


def reason_of(obstacle: Obstacle, grace_period_ms: int) -> str:
    """Why no compaction can be undone, in a sentence or two. `grace_period_ms`: that of `gc`."""
    from sidecar.archive.replacement import NoUndo

    match obstacle.reason:
        case NoUndo.NEVER_COMPACTED:
            text = (
                "nothing to undo: no live segment comes from a compaction of the archive (before_upload keeps none raw)"
            )
        case NoUndo.UNDONE:
            text = f"nothing to undo: commit {obstacle.undone_by_commit} has undone the newest compaction already"
        case NoUndo.PURGED:
            text = (
                "the newest compaction cannot be undone: gc has committed the deletion of what it replaced. The compacted "
                "segments stay live"
            )
        case NoUndo.CHANGED:
            text = "the newest compaction cannot be undone: its segments were changed since"
    until_ms = obstacle.older_until_ms(grace_period_ms)
    if until_ms is None:
        return text
    number, count = obstacle.older[0].removed_by_commit, len(obstacle.older)
    older = f"commit {number}, an older compaction, replaced {count} segments, and gc keeps these until {utc(until_ms)} at least"
    return f"{text}. Only the newest compaction can be undone: {older}"
