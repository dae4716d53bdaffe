"""`status` and `verify`: what an archive holds, and whether all of it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.archiving import Archive, Excluded, Topics
from sidecar.cli.options import GlobalOptions
from sidecar.errors import PartitionError, SidecarError, VerificationMismatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.config import Settings
    from sidecar.pipeline.verify import PartitionVerification
    from sidecar.ports import ObjectStore

JSON_VERSION = 1


def status(options: GlobalOptions, archive: Archive = None, topic: Topics = None, exclude: Excluded = None) -> int:
    """Show what the archive holds, partition by partition; exit code 3 if one of them cannot be read."""
    settings = _settings(options, archive, topic, exclude)
    from sidecar.clock import SystemClock
    from sidecar.pipeline.status import archive_status

    store = _store(settings)
    rows = archive_status(store, SystemClock(), include=_chosen(settings))
    if not rows:
        _require_topic(store, settings)
    if options.json:
        from sidecar.cli.output import print_json

        for row in rows:
            print_json({"kind": "partition_status", "version": JSON_VERSION, **row.to_json()})
    else:
        from sidecar.cli.output import print_table, remark, size

        shown = [
            (
                f"{row.topic}-{row.partition}",
                row.topic_id,
                row.start_offset,
                row.end_offset,
                row.segments,
                size(row.bytes),
                row.leader_epoch,
                _holes(row.holes),
            )
            for row in rows
        ]
        columns = ["partition", "topic id", "from#", "to#", "segments#", "size#", "leader epoch#", "holes"]
        if shown:
            print_table(f"Archive {store.url}", columns, shown, colors=options.colors)
            for row in rows:
                if row.problem:
                    remark(f"{row.topic}-{row.partition}: {row.problem}")
        else:
            remark(f"nothing is archived at {store.url}")
    return PartitionError.exit_code if any(row.problem for row in rows) else 0


def verify(
    options: GlobalOptions,
    archive: Archive = None,
    topic: Topics = None,
    exclude: Excluded = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every byte and every batch, not only sizes, checksums and indexes.")
    ] = False,
) -> int:
    """Prove that the archive is whole: exit code 4 if it is not, 3 if a part of it cannot be read, 1 if it is empty.

    A segment is FOUND if the store has what was committed; LOST if that is missing or damaged, or if its offsets were
    recorded as lost; UPLOADING if it is above the archive's end and at most 15 minutes old, DELAYED if it is older.
    """
    settings = _settings(options, archive, topic, exclude)
    from sidecar.clock import SystemClock
    from sidecar.pipeline.verify import verify_archive

    store = _store(settings)
    found: list[PartitionVerification] = []
    for partition in verify_archive(store, SystemClock(), deep=deep, include=_chosen(settings)):
        if options.json:
            from sidecar.cli.output import print_json

            print_json({"kind": "partition_verification", "version": JSON_VERSION, **partition.to_json()})
        found.append(partition)
    if not found:
        _require_topic(store, settings)
        raise SidecarError(f"nothing is archived at {store.url}, so there is nothing to verify")
    if not options.json:
        _show(found, store.url, colors=options.colors)
    if any(not partition.is_sound and not partition.is_unread for partition in found):
        return VerificationMismatch.exit_code
    return PartitionError.exit_code if any(partition.is_unread for partition in found) else 0


def _settings(
    options: GlobalOptions, archive: str | None, topics: list[str] | None, excluded: list[str] | None
) -> Settings:
    flags: dict[str, Any] = {"store.url": archive, "topics.include": topics or None, "topics.exclude": excluded or None}
    return options.settings(flags)


def _store(settings: Settings) -> ObjectStore:
    from sidecar.storage import open_existing

    return open_existing(settings.store)


def _require_topic(store: ObjectStore, settings: Settings) -> None:
    """Where nothing was found: say so if it was only not asked for."""
    from sidecar.pipeline.assembly import require_topic
    from sidecar.pipeline.lineages import find_all_lineages

    topics = {lineage.topic_partition.topic for lineage in find_all_lineages(store)}
    require_topic(topics, settings, internal=True)


def _chosen(settings: Settings) -> Callable[[str], bool]:
    """Which topics are wanted. Internal ones are as good as others here: they are archived only where that was asked."""
    from sidecar.discovery.topic_filter import TopicFilter

    topics = TopicFilter(settings.topics.include, settings.topics.exclude)
    return lambda topic: topics.accepts(topic, internal_topics=True)


def _holes(holes: tuple[Any, ...]) -> str:
    return " ".join(f"[{hole.base_offset}, {hole.end_offset})" for hole in holes)


_OF_OBJECTS = {"missing_object", "size_mismatch", "checksum_mismatch", "corrupt_content"}


def _show(found: list[PartitionVerification], url: str, *, colors: bool) -> None:
    from rich.text import Text

    from sidecar.cli.output import print_table, remark

    rows = []
    for partition in found:
        row = partition.row
        verdict = Text("sound", "green") if partition.is_sound else Text(f"{len(partition.problems)} problems", "red")
        states = [str(segment.state) for segment in partition.segments]
        counts = " ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        offsets = (row.start_offset, row.end_offset)
        rows.append((f"{row.topic}-{row.partition}", *offsets, counts, len(partition.orphans), verdict))
    columns = ["partition", "from#", "to#", "segments", "orphaned objects#", "verdict"]
    print_table(f"Verification of {url}", columns, rows, colors=colors)
    for partition in found:
        for problem in partition.problems:
            what = problem.what if problem.key in problem.what else f"{problem.key}: {problem.what}"
            remark(f"problem: {what}")
    if any(problem.kind in _OF_OBJECTS for partition in found for problem in partition.problems):
        remark(
            "restore what is missing or damaged from a replica of the bucket or an earlier version, then verify again"
        )
