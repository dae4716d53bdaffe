"""Compacts symbolic archives: the product's own plan, commit and clearing up, with symbolic copies in the place of engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from crc32c import crc32c

from sidecar.archive.bundle import assemble_indexes, log_part
from sidecar.archive.keys import below, fresh_id, indexes_key, log_key
from sidecar.commits.checked_upload import send_bytes, send_checked
from sidecar.compactor.archive.archived_log import LAST_MODIFIED
from sidecar.compactor.archive.compactor import ArchiveCompactor
from sidecar.compactor.archive.plan import CompactionRequest, PartitionCompaction, PartitionInWork, plan_archive
from sidecar.compactor.archive_job import ArchiveJobs
from sidecar.compactor.candidate_queue import Candidate, LedPartition
from sidecar.compactor.topic_rule import rules_of, topic_rule
from sidecar.errors import SidecarError
from sidecar.logformat.leader_epochs import epochs_of
from sidecar.model import ArchivedSegment, ObjectKey, PartName
from sidecar.runner.context import RunContext
from sidecar.segment.archived_objects import read_parts
from tests.simulation.batches import Batch, decode, encode
from tests.simulation.compactor import CopySource
from tests.simulation.decision import ends_of, kept_of, output_of, policy_for, settings
from tests.simulation.link import SimLink
from tests.simulation.reading import built_from


@dataclass(frozen=True, slots=True)
class _Source:
    segment: ArchivedSegment


@dataclass(frozen=True, slots=True)
class _Output:
    """What becomes of adjacent segments. `unchanged`: the one that it is made of stays."""

    sources: tuple[_Source, ...]
    batches: tuple[Batch, ...]
    unchanged: bool


class SimArchiveCompactor(ArchiveCompactor):
    """As `ArchiveCompactor`, but for what an engine does."""

    def __init__(self, context: RunContext, link: SimLink, random: Random, confirm: Callable[..., None]) -> None:
        """Args: link: to the store. random: decides which segments become one."""
        super().__init__(
            cast("Any", None), cast("Any", None), context.clock, confirm=confirm, randomness=context.randomness
        )
        self._link, self._random = link, random

    def _planned(self, partitions: Sequence[PartitionInWork]) -> list[PartitionInWork]:
        for found in partitions:
            try:
                found.plan = plan_archive(self._link, found.request, self.clock)
                if not found.plan.count:
                    found.succeed(None)
            except SidecarError as error:
                found.fail(error)
        return [found for found in partitions if found.result is None]

    def _run(
        self, running: Sequence[PartitionInWork], dry_run: bool, done: Callable[[PartitionCompaction], None]
    ) -> None:
        assert not dry_run
        for found in running:
            try:
                outputs = tuple(self._outputs(found))
                found.outputs = cast("Any", outputs)
                found.window = self._window()
                for number, output in enumerate(outputs):
                    if not output.unchanged:
                        found.finished[number] = self._uploaded(found, output)
            except SidecarError as error:
                self._give_up(found, error)
        self._commit_all(running, done)

    def _outputs(self, found: PartitionInWork) -> Iterator[_Output]:
        assert found.plan is not None
        plan, root = found.plan, found.request.root
        segments = plan.state.segments  # those behind the plan's say how transactions ended
        logs = [decode(self._link.read(below(root, segment.log_key), whole=True)) for segment in segments]
        ends = ends_of(batch for log in logs for batch in log)
        start_offset = plan.state.deleted_before_offset
        taken = [batch for log in logs[: plan.count] for batch in log if batch.end_offset > start_offset]
        kept = kept_of(taken, ends, found.request.rules)
        first = 0
        while first < plan.count:
            last = first + self._random.randint(1, 3)
            while last > plan.count or any(
                one.end_offset != next_one.base_offset
                for one, next_one in zip(segments[first:last], segments[first + 1 : last], strict=False)
            ):
                last -= 1
            batches = [batch for log in logs[first:last] for batch in log]
            stays = output_of(batches, kept)
            is_unchanged = last == first + 1 and stays == batches
            yield _Output(tuple(map(_Source, segments[first:last])), tuple(stays), is_unchanged)
            first = last

    def _uploaded(self, found: PartitionInWork, output: _Output) -> ArchivedSegment:
        root, rules, store = found.request.root, found.request.rules, self._link
        sources = [source.segment for source in output.sources]
        base_offset, end_offset = sources[0].base_offset, sources[-1].end_offset
        content, built = encode(output.batches), built_from(list(output.batches))
        old = read_parts(store, root, sources[-1])
        indexes, parts = assemble_indexes(
            b"", b"", old[PartName.PRODUCER_SNAPSHOT], old[PartName.LEADER_EPOCHS], built.transaction_index or None
        )
        segment_id = fresh_id(self.randomness)
        segment = ArchivedSegment(
            segment_id=segment_id,
            base_offset=base_offset,
            end_offset=end_offset,
            log_key=log_key(base_offset, segment_id),
            indexes_key=indexes_key(base_offset, segment_id),
            parts=(log_part(len(content), crc32c(content)), *parts),
            leader_epochs=epochs_of(
                (entry.epoch, entry.start_offset) for source in sources for entry in source.leader_epochs
            ).entries,
            highest_batch_leader_epoch=built.leader_epochs.latest_epoch,
            max_timestamp_ms=built.max_timestamp_ms,
            batch_count=built.batch_count,
            snapshot=sources[-1].snapshot,
            generation=max(source.generation for source in sources) + 1,
            strategy=str(rules.effective_strategy),
            strategy_parameters={**rules.parameters, LAST_MODIFIED: "0"},
            first_batch_crc=built.first_batch_crc,
            last_batch_crc=built.last_batch_crc,
            compacted_from=next((raw for source in reversed(sources) if (raw := source.raw_batches)), None),
        )
        key = below(root, segment.log_key)
        try:
            source = CopySource(content, len(content), key)
            send_checked(store, key, source, segment.parts[0].crc32c, reads_back=True)
            send_bytes(store, below(root, segment.indexes_key), indexes)
        except SidecarError:
            store.delete([key, below(root, segment.indexes_key)])
            raise
        return segment


def compact_by_hand(
    context: RunContext, link: SimLink, root: ObjectKey, random: Random, strategy: str | None
) -> list[SidecarError]:
    """Compact one partition by a strategy that its operator declares, or by none; the errors that it ended with."""
    compactor = SimArchiveCompactor(context, link, random, lambda _request, _decided: None)
    rules = rules_of(policy_for(strategy), context.clock.now_ms())
    return _errors(compactor, CompactionRequest(root, rules, may_change_strategy=strategy is not None))


def compact_in_run(
    context: RunContext, link: SimLink, led: LedPartition, random: Random, strategy: Callable[[], str | None]
) -> list[SidecarError]:
    """The same as part of a sidecar that leads it. Args: strategy: of the topic's configs, asked again before the commit."""
    jobs = ArchiveJobs(
        cast("Any", SimpleNamespace(compaction=settings())),
        context,
        cast("Any", None),
        lambda topic: replace(
            topic_rule(settings(), topic, context.facts.policy(topic)), policy=policy_for(strategy())
        ),
    )
    work = Candidate(led, policy_for(strategy()), cast("Any", SimpleNamespace(first_uncleanable_offset=None)))
    confirm = partial(jobs._confirm_one, work)
    compactor = SimArchiveCompactor(context, link, random, lambda _request, decided: confirm(decided))
    return _errors(compactor, jobs._request(work, context.clock.now_ms()))


def _errors(compactor: SimArchiveCompactor, request: CompactionRequest) -> list[SidecarError]:
    return [result.error for result in compactor.compact([request]) if result.error is not None]
