"""`gc`: objects that no reader can need any more are deleted from the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.archiving import Archive, Excluded, Topics
from sidecar.cli.options import GlobalOptions
from sidecar.cli.output import names_of, place_of, print_answer, print_table, remark
from sidecar.clock import SystemClock
from sidecar.errors import SidecarError

if TYPE_CHECKING:
    from sidecar.archive.keys import Lineage
    from sidecar.clock import Clock
    from sidecar.ports import ObjectStore


def gc(
    options: GlobalOptions,
    archive: Archive = None,
    topic: Topics = None,
    exclude: Excluded = None,
    grace_ms: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Delete objects older than this. Must exceed the longest read. Default: gc.grace_period_ms. Objects that no "
            "commit names are kept for a day at least, also those whose deletion failed.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be deleted; delete nothing.")] = False,
) -> int:
    """Delete objects of replaced segments, and of abandoned uploads, after their grace period. Objects that a live
    segment names are never deleted: before it deletes anything of a partition, the command reads all its commits. Where
    there is nothing to delete, it may not notice a missing commit: run `verify`. After the bucket lost objects or was
    rolled back, first wait until `run` or `backfill`, with its old state directory, has finished without an error. The
    newest commits may be missing, which this command cannot notice. Ages are measured by the store's clock: the command
    puts a small object below _probe/ and deletes it, also with --dry-run. Exit code 1 if nothing is committed there, 3
    if a partition could not be read (nothing of it is deleted), 6 if the store has no modification times, or refuses to
    list a partition.
    """
    from sidecar.cli.options import is_chosen, require_commits, with_chosen

    settings = options.settings({"store.url": archive, "gc.grace_period_ms": grace_ms}, calm=True)
    settings = with_chosen(settings, topic, exclude)
    from sidecar.commits.lineages import find_all_lineages
    from sidecar.compactor.archive.stored_parts import STAGING
    from sidecar.compactor.gc import abort_uploads, collect_parts, orphaned_until_ms
    from sidecar.reporting.advice import advised
    from sidecar.storage.leftovers import list_uploads, remove_leftovers
    from sidecar.storage.opening import open_existing
    from sidecar.storage.store_clock import read_store_clock

    store, clock = open_existing(settings.store), SystemClock()
    grace_period_ms = settings.gc.grace_period_ms
    lineages = list(find_all_lineages(store, is_chosen(settings)))
    require_commits(store, settings, lineages)
    store_now_ms = read_store_clock(store, clock).store_ms
    until_ms = orphaned_until_ms(store_now_ms, grace_period_ms)
    parts = collect_parts(store, until_ms, dry_run=dry_run)
    probes = remove_leftovers(store, until_ms, dry_run=dry_run)
    listed = list_uploads(store, "")
    if listed.not_listed:
        remark(f"unfinished multipart uploads remain: {listed.not_listed}; {listed.advice}")
    roots = {lineage.root for lineage in lineages}
    aborted = abort_uploads(store, listed.uploads, roots, until_ms, dry_run=dry_run)
    uploads = None if listed.not_listed else aborted
    rows: list[tuple[object, ...]] = []
    code, name = 0, names_of(lineages)
    for lineage in lineages:
        found: dict[str, Any] = {"replaced_segments": 0, "orphans": 0, "problem": None}
        found["unfinished_uploads"] = None if uploads is None else uploads[lineage.root]
        try:
            found |= _collected(store, lineage, clock, store_now_ms, grace_period_ms, dry_run=dry_run)
        except SidecarError as error:
            found["problem"] = str(error)
            code = max(code, error.exit_code)
            remark(f"{name(lineage)}: {advised(error)}")
        counted = (None, None) if found["problem"] else (found["replaced_segments"], found["orphans"])
        figures = (*counted, found["unfinished_uploads"])
        rows.append((name(lineage), *figures))
        if options.json:
            print_answer("garbage", {**place_of(lineage), "dry_run": dry_run, **found})
    begun = None if uploads is None else uploads[STAGING]
    if options.json:
        work_files = {"dry_run": dry_run, "work_files": parts, "probe_objects": probes, "unfinished_uploads": begun}
        print_answer("garbage_work_files", work_files)
    else:
        title = "Would be deleted" if dry_run else "Deleted"
        columns = ["partition", "replaced segments#", "orphaned objects#", "unfinished uploads#"]
        print_table(
            title,
            columns,
            [*rows, ("work files", None, parts, begun), ("probes", None, probes, None)],
            colors=options.colors,
        )
    return code


def _collected(
    store: ObjectStore, lineage: Lineage, clock: Clock, store_now_ms: int, grace_period_ms: int, *, dry_run: bool
) -> dict[str, Any]:
    from sidecar.commits.commit_log import CommitLog
    from sidecar.compactor.archive.plan import operator
    from sidecar.compactor.gc import collect_garbage

    writer = operator(CommitLog(store, lineage.root, clock).read())
    found = collect_garbage(
        store,
        lineage.root,
        clock,
        writer,
        store_now_ms=store_now_ms,
        grace_period_ms=grace_period_ms,
        dry_run=dry_run,
    )
    return {"replaced_segments": found.removed, "orphans": found.orphans}
