"""`compact --archive`: partitions of an archive compacted where they lie, what would come of it, or that undone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidecar.cli.compact.rules import Wanted, tell_rules
from sidecar.cli.engines import MEMORY_BYTES_MAX, Work, WorkKind, stage_engine, takes_spark
from sidecar.cli.options import GlobalOptions
from sidecar.cli.output import names_of, place_of, print_answer, print_table, remark, size, utc
from sidecar.clock import SystemClock
from sidecar.compaction_strategy import Strategy
from sidecar.errors import PartitionError, SettingsError, SidecarError, StoreError
from sidecar.model import EngineName
from sidecar.plurals import plural
from sidecar.reporting.advice import advised

if TYPE_CHECKING:
    from sidecar.archive.keys import Lineage
    from sidecar.archive.replacement import Obstacle
    from sidecar.compactor.archive.compactor import ArchiveCompactor
    from sidecar.compactor.archive.plan import CompactionRequest, PartitionCompaction
    from sidecar.compactor.command_rules import CommandRules
    from sidecar.config import Settings
    from sidecar.engine_ports import StageEngine
    from sidecar.ports import ObjectStore
    from sidecar.rewriting.work_files import WorkFile

_TOGETHER = 256
"""So many partitions in one run: what is committed stays, whatever becomes of the next ones."""


def compact_archive(
    options: GlobalOptions,
    settings: Settings,
    wanted: Wanted,
    *,
    dry_run: bool,
    keys_file: Path | None,
) -> int:
    """Compact the chosen topics. 0, or 3 if a partition could not be; 6 if the store failed. Raises SettingsError."""
    from sidecar.cli.options import is_chosen, require_commits
    from sidecar.commits.lineages import find_all_lineages
    from sidecar.compactor.archive.compactor import ArchiveCompactor
    from sidecar.rewriting.what_if import list_of_keys
    from sidecar.storage.opening import open_existing

    store = open_existing(settings.store)
    lineages = find_all_lineages(store, is_chosen(settings))
    require_commits(store, settings, lineages)
    lineages, requests, rules = _requests(options, settings, store, lineages, wanted)
    if not requests:
        return 0
    with list_of_keys(keys_file) as keys, _engine(settings, store, lineages) as (runner, staging):
        compactor = ArchiveCompactor(
            settings.store,
            runner,
            SystemClock(),
            staging,
            max_staging_bytes=settings.compaction.staging_bytes,
            tell=lambda text: None if options.quiet else remark(text),
        )
        if wanted.what_if:
            return _forecast(options, compactor, runner, lineages, requests, keys)
        failed: list[SidecarError] = []
        for first in range(0, len(requests), _TOGETHER):
            results = compactor.compact(requests[first : first + _TOGETHER], dry_run=dry_run)
            _show(options, lineages[first : first + _TOGETHER], results, rules, dry_run=dry_run)
            failed += [result.error for result in results if result.error is not None]
    return max((error.exit_code for error in failed), default=0)


def _requests(
    options: GlobalOptions, settings: Settings, store: ObjectStore, lineages: Sequence[Lineage], wanted: Wanted
) -> tuple[tuple[Lineage, ...], list[CompactionRequest], dict[str, CommandRules]]:
    """Those that are to be compacted, and what holds for their topics; of the others it is said why not.

    Raises SettingsError where flags contradict what is declared, before anything is compacted.
    """
    from sidecar.cli.compact.rules import changes_of, policies_of, request_of

    reported = policies_of(settings, lineages)
    rules = {topic: wanted.of_topic(settings, topic, reported[topic]) for topic in sorted(reported)}
    wanted.settle([objection for found in rules.values() for objection in found.objections])
    if not wanted.what_if:
        wanted.settle(changes_of(store, lineages, rules))
    chosen: list[Lineage] = []
    requests: list[CompactionRequest] = []
    skipped: set[str] = set()
    for lineage in lineages:
        topic = lineage.topic_partition.topic
        request = request_of(store, lineage, rules[topic], reported[topic], wanted)
        if isinstance(request, str):
            line = f"{lineage.topic_partition} is skipped: {request}"
            if line not in skipped:  # Once for all incarnations of a topic, whose settings are the same.
                remark(line)
            skipped.add(line)
        else:
            chosen.append(lineage)
            requests.append(request)
    if not (options.quiet or wanted.what_if):
        tell_rules(rules[topic] for topic in sorted({lineage.topic_partition.topic for lineage in chosen}))
    return tuple(chosen), requests, rules


@contextmanager
def _engine(
    settings: Settings, store: ObjectStore, lineages: Sequence[Lineage]
) -> Iterator[tuple[StageEngine, Path | None]]:
    """The engine, and where work files lie if all its tasks see this machine."""
    # A name or a cluster decides without a listing.
    decided = settings.spark.engine is not EngineName.AUTO or not settings.spark.is_local
    work = Work(WorkKind.COMPACTION, 0, on_this_machine=False) if decided else _work_on(store, lineages)
    with stage_engine(settings, work) as runner:
        sees_us = settings.spark.is_local or not takes_spark(settings, work)
        yield runner, settings.compaction.staging_path if sees_us else None


def _work_on(store: ObjectStore, lineages: Sequence[Lineage]) -> Work:
    """How much there is to compact at most; counting ends where no more can matter."""
    from sidecar.archive.keys import SEGMENTS, below

    size_bytes = 0
    for lineage in lineages:
        for facts in store.list(below(lineage.root, SEGMENTS)):
            size_bytes += facts.size_bytes
            if size_bytes > MEMORY_BYTES_MAX:
                break
    return Work(WorkKind.COMPACTION, size_bytes, on_this_machine=False)


def _show(
    options: GlobalOptions,
    lineages: Sequence[Lineage],
    results: Sequence[PartitionCompaction],
    rules: Mapping[str, CommandRules],
    *,
    dry_run: bool,
) -> None:
    rows: list[tuple[object, ...]] = []
    name = names_of(lineages)
    for lineage, result in zip(lineages, results, strict=True):
        if options.json:
            entry = rules[lineage.topic_partition.topic].entry
            found = {**as_json(lineage, result), "entry": entry}
            print_answer("archive_compaction", found)
        if result.error is not None:
            outcome = "unknown" if result.is_unknown else "failed"
            rows.append((name(lineage), *[None] * 8, outcome))
            continue
        rows.append(
            (
                name(lineage),
                sum(len(output.sources) for output in result.outputs),
                len(result.outputs),
                size(result.bytes_before),
                size(result.bytes_after),
                result.records_before,
                result.records_after,
                result.unkeyed,
                result.left_alone,
                "would be" if result.would_commit else result.commit_number,
            )
        )
    if options.json:
        return
    columns = ["partition", "segments before#", "after#", "size before#", "after#", "records before#", "after#"]
    print_table("Compaction", [*columns, "without key#", "left alone#", "commit#"], rows, colors=options.colors)
    for lineage, result in zip(lineages, results, strict=True):
        if result.error is not None:
            state = "may have been compacted" if result.is_unknown else "was not compacted"
            see = ". `tiered-sidecar status` shows in `compacted` whether it was" if result.is_unknown else ""
            remark(f"{name(lineage)} {state}: {advised(result.error)}{see}")
            continue
        if result.strategy_before is not None:
            was = "would change" if dry_run else "changed"
            new = result.request.rules.in_use
            remark(
                f"{name(lineage)}: the strategy {was} from {result.strategy_before} to {new}; records "
                "that earlier compactions dropped stay dropped"
            )
        if result.deleted:
            does = "would drop" if dry_run else "dropped"
            remark(
                f"{name(lineage)}: compaction {does} {plural(result.deleted, 'record')} that "
                "DeleteRecords had removed on the "
                f"broker; the replaced segments keep such records until gc deletes those segments"
            )


def as_json(lineage: Lineage, result: PartitionCompaction) -> dict[str, Any]:
    """Names are stable. `commit` is null where nothing was committed; `would_commit` is for a dry run."""
    rules = result.request.rules
    return {
        **place_of(lineage),
        "strategy": str(rules.effective_strategy),
        "header": rules.in_use.header or None,
        "strategy_before": None if result.strategy_before is None else str(result.strategy_before),
        "now_ms": rules.now_ms,
        **result.figures_as_json(),
        "segments_left_alone": result.left_alone,
        "segments": [output.to_json() for output in result.outputs],
        "commit": result.commit_number,
        "would_commit": result.would_commit,
        "problem": None if result.error is None else advised(result.error),
    }


def _forecast(
    options: GlobalOptions,
    compactor: ArchiveCompactor,
    runner: Any,
    lineages: Sequence[Lineage],
    requests: Sequence[CompactionRequest],
    keys: WorkFile | None,
) -> int:
    from sidecar.cli.compact.tables import show_outlooks
    from sidecar.rewriting.what_if import what_if, write_others

    code, shown_name = 0, names_of(lineages)
    for lineage, request in zip(lineages, requests, strict=True):
        place = place_of(lineage)
        rules = request.rules
        strategies = [strategy for strategy in Strategy if strategy is not Strategy.HEADER or rules.header_name]
        try:
            job = compactor.job_of(request)
            outlooks = () if job is None else tuple(what_if(job, strategies, runner))
        except (PartitionError, StoreError) as error:
            remark(f"{shown_name(lineage)}: {advised(error)}")
            if options.json:
                print_answer("compaction_what_if", {**place, "problem": advised(error)})
            code = max(code, error.exit_code)
            continue
        write_others(keys, place, outlooks)
        if options.json:
            for outlook in outlooks:
                found = {**outlook.to_json(), "problem": None}
                print_answer("compaction_what_if", {**place, **found})
        else:
            show_outlooks(shown_name(lineage), outlooks, colors=options.colors)
    return code


def undo_archive(options: GlobalOptions, settings: Settings, partitions: frozenset[int], *, dry_run: bool) -> int:
    """Undo the newest compaction of the chosen partitions, one commit each. 0, or the exit code of the worst failure.

    Args:
        partitions: only these; empty for all of the chosen topics.
    """
    from sidecar.cli.options import is_chosen, require_commits
    from sidecar.commits.lineages import find_all_lineages
    from sidecar.compactor.archive.undo import Undone, undo_compaction
    from sidecar.storage.opening import open_existing

    store, code = open_existing(settings.store), 0
    lineages = find_all_lineages(store, is_chosen(settings))
    require_commits(store, settings, lineages)
    if partitions:
        lineages = tuple(found for found in lineages if found.topic_partition.partition in partitions)
    if not lineages:
        raise SettingsError(f"--partition {' '.join(map(str, sorted(partitions)))}: the archive has none of these")
    rows: list[tuple[object, ...]] = []
    remarks: list[str] = []
    shown_name = names_of(lineages)
    for lineage in lineages:
        problem, undone = None, Undone()
        try:
            undone = undo_compaction(store, lineage.root, SystemClock(), dry_run=dry_run)
        except SidecarError as error:
            problem, code = advised(error), max(code, error.exit_code)
            remarks.append(f"{shown_name(lineage)}: {problem}")
        else:
            if undone.obstacle is not None:
                remarks.append(f"{shown_name(lineage)}: {reason_of(undone.obstacle, settings.gc.grace_period_ms)}")
        found = undone.to_json()
        if options.json:
            print_answer("compaction_undo", {**place_of(lineage), **found, "problem": problem})
        done = "failed" if problem else "would be" if dry_run and undone.replacement else found["commit"]
        figures = (found["segments_removed"], found["segments_live_again"], size(found["bytes_live_again"]))
        rows.append(
            (shown_name(lineage), found["undone_commit"], *((None,) * len(figures) if problem else figures), done)
        )
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
    older = (
        f"commit {number}, an older compaction, replaced {plural(count, 'segment')}, which gc keeps until "
        f"{utc(until_ms)} at least"
    )
    return f"{text}. Only the newest compaction can be undone: {older}"
