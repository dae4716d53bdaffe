"""`gc`: objects that no reader can need any more are deleted from the archive."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.archiving import Archive, Excluded, Topics
from sidecar.cli.options import GlobalOptions
from sidecar.errors import SidecarError

if TYPE_CHECKING:
    from sidecar.archive.keys import Lineage
    from sidecar.clock import Clock
    from sidecar.ports import ObjectStore

JSON_VERSION = 1


def gc(
    options: GlobalOptions,
    archive: Archive = None,
    topic: Topics = None,
    exclude: Excluded = None,
    grace_ms: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Age from which on they go. Longer than any read. Default: the setting."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count them, and delete nothing.")] = False,
) -> int:
    """Delete objects of replaced segments, and of uploads that were given up, once their grace period is over.

    What a commit names is never deleted. Exit code 3 if a partition could not be read; nothing is deleted there.
    """
    flags = {"store.url": archive, "topics.include": topic or None, "topics.exclude": exclude or None}
    settings = options.settings({**flags, "gc.grace_period_ms": grace_ms}, calm=True)
    from sidecar.cli.output import print_json, print_table, remark
    from sidecar.clock import SystemClock
    from sidecar.discovery.topic_filter import TopicFilter
    from sidecar.pipeline.advice import advised
    from sidecar.pipeline.lineages import find_all_lineages
    from sidecar.storage import open_existing

    store, topics = open_existing(settings.store), TopicFilter(settings.topics.include, settings.topics.exclude)
    rows: list[tuple[object, ...]] = []
    code = 0
    for lineage in find_all_lineages(store, lambda name: topics.accepts(name, internal_topics=True)):
        found: dict[str, Any] = {"replaced_segments": 0, "orphans": 0, "problem": None}
        try:
            found |= _collected(store, lineage, SystemClock(), settings.gc.grace_period_ms, dry_run=dry_run)
        except SidecarError as error:
            found["problem"] = str(error)
            code = max(code, error.exit_code)
            remark(f"{lineage.topic_partition}: {advised(error)}")
        rows.append((str(lineage.topic_partition), found["replaced_segments"], found["orphans"]))
        if options.json:
            place = {"topic": lineage.topic_partition.topic, "partition": lineage.topic_partition.partition}
            place |= {"cluster_id": lineage.cluster_id, "incarnation": lineage.incarnation}
            print_json({"kind": "garbage", "version": JSON_VERSION, **place, "dry_run": dry_run, **found})
    if not options.json:
        title = "Would be deleted" if dry_run else "Deleted"
        print_table(title, ["partition", "replaced segments#", "orphaned objects#"], rows, colors=options.colors)
    return code


def _collected(
    store: ObjectStore, lineage: Lineage, clock: Clock, grace_period_ms: int, *, dry_run: bool
) -> dict[str, Any]:
    from sidecar.pipeline.commit_log import CommitLog
    from sidecar.pipeline.compaction.archive_plan import operator
    from sidecar.pipeline.garbage import collect_garbage

    writer = operator(CommitLog(store, lineage.root, clock).read())
    found = collect_garbage(store, lineage.root, clock, writer, grace_period_ms=grace_period_ms, dry_run=dry_run)
    return {"replaced_segments": found.removed, "orphans": found.orphans}
