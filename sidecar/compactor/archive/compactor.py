"""Compacts archived partitions, many in one run: read from the store, written to it, and each committed for itself."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Final

from sidecar.archive.bundle import log_size_bytes
from sidecar.archive.keys import below, fresh_id
from sidecar.archive.state import PartitionState
from sidecar.clock import Clock
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.commit_window import CommitWindow
from sidecar.commits.stored_commits import SETTLE_S_PATIENT, WAIT_S_FIRST, WAIT_S_MAX, proves_not_committed
from sidecar.compaction.segments import SPLIT_BYTES
from sidecar.compactor.archive.archived_log import ArchivedLog, ArchivedSurvey, Copy
from sidecar.compactor.archive.finishing import FinishTask, commit, finish
from sidecar.compactor.archive.plan import (
    CompactionRequest,
    Job,
    PartitionCompaction,
    PartitionInWork,
    plan_archive,
    unsettled,
)
from sidecar.compactor.archive.stored_parts import StoredParts
from sidecar.engine_ports import StageEngine
from sidecar.errors import CompactionCutOff, SidecarError, StagingTooSmall, StoreUnavailable
from sidecar.event_log import EVENTS
from sidecar.host import process_store
from sidecar.ports import ObjectStore
from sidecar.randomness import Randomness, SystemRandomness
from sidecar.rewriting.job import HASH_KEY_BYTES, CompactionJob, planned_pieces
from sidecar.rewriting.packing import SegmentNeed, Step, plan_copies, require_room, steps
from sidecar.rewriting.run import ScannedRun, rewritten, scanned
from sidecar.rewriting.work_files import LocalParts, Parts, free_bytes_of
from sidecar.spark.scratch import Scratch
from sidecar.store_settings import StoreSettings

_THREADS: Final = 8


@dataclass(eq=False)
class ArchiveCompactor:
    """Runs on any engine. Without a staging directory tasks share nothing but the store, and have temporary files of their own.

    `staging`: a directory for work files that all tasks see. None: these lie in the store, as on a cluster. `confirm`: called
    right before the commit of a partition, by several threads, with the state that was compacted. If it raises a SidecarError,
    nothing of that partition is committed. `max_staging_bytes`: that much may wait at once as work files, in the directory or in
    the store. `free_bytes`: how much may still be written to the file system of the directory. `is_cut_off`: asked before each
    step and each commit; if it is so, CompactionCutOff ends what is not committed. `tell`: takes each step, for people.
    `randomness`: of ids, nonces and hash keys.
    """

    settings: StoreSettings
    engine: StageEngine
    clock: Clock
    staging: Path | None = None
    _: KW_ONLY
    confirm: Callable[[CompactionRequest, PartitionState], None] = lambda _request, _decided: None
    split_bytes: int = SPLIT_BYTES
    max_staging_bytes: int = 2**63 - 1
    free_bytes: Callable[[Path], int] = free_bytes_of
    is_cut_off: Callable[[], bool] = lambda: False
    tell: Callable[[str], None] = lambda _: None
    randomness: Randomness = field(default_factory=SystemRandomness)

    @property
    def _store(self) -> ObjectStore:
        return process_store.store_of(self.settings)

    def compact(
        self,
        requests: Sequence[CompactionRequest],
        *,
        dry_run: bool = False,
        done: Callable[[PartitionCompaction], None] = lambda _: None,
    ) -> tuple[PartitionCompaction, ...]:
        """By request, how it ended. Raises only what ends all of them: StagingFull, CompactionCutOff, and what the engine raises.

        Each partition is committed as soon as all of it is uploaded. What is committed before an error stays; of all else the
        uploads are deleted. `done`: called for each partition that is committed.
        """
        partitions = [PartitionInWork(request) for request in requests]
        running = self._planned(partitions)
        with ExitStack() as unless_whole:
            unless_whole.callback(self._end_early, running)
            if running:
                self._run(running, dry_run, done)
            unless_whole.pop_all()
        return tuple(found.result for found in partitions if found.result is not None)

    def _end_early(self, running: Sequence[PartitionInWork]) -> None:
        """Whatever ended all of them, an interrupt too: the uploads that no commit names must not stay."""
        if committed := [found.request.root for found in running if found.result and not found.result.error]:
            EVENTS.warning("compaction_ended_early", committed=committed, effect="the other partitions are unchanged")
        for found in unsettled(running):
            if not found.is_committing:  # No commit was sent, so that none can name what was uploaded.
                self._discard(found)

    def _run(
        self, running: Sequence[PartitionInWork], dry_run: bool, done: Callable[[PartitionCompaction], None]
    ) -> None:
        with self._parts() as (parts, place):
            copies, copied_bytes = self._copies(running, place)
            jobs = [self._make_job(found, place, copies) for found in running]
            self.tell("reading headers and keys")
            with scanned(jobs, self.engine) as run:
                todo = self._steps(running, run, self.max_staging_bytes - copied_bytes)
                last_step = {job: number for number, step in enumerate(todo) for job in step}
                for number, step in enumerate(todo):
                    self._require_going_on()
                    if number and not dry_run:
                        with suppress(SidecarError):  # What cannot be taken away now is at the end.
                            parts.forget_all()
                    self._rewrite(running, run, None if dry_run else parts, step)
                    if not dry_run:
                        self._require_going_on()
                        self._finish(running, parts, place, step)
                        self._commit_all([running[job] for job in step if last_step[job] == number], done)
        if dry_run:
            for found in unsettled(running):
                if found.spares_undo(found.planned.state):
                    found.leave_sources()
                found.succeed(None, would_commit=found.needs_commit(found.planned.state))

    def _require_going_on(self) -> None:
        if self.is_cut_off():
            raise CompactionCutOff

    def _commit_all(self, uploaded: Sequence[PartitionInWork], done: Callable[[PartitionCompaction], None]) -> None:
        ready = unsettled(uploaded)
        tell_once = cache(partial(self.tell, "committing"))
        try:
            with ThreadPoolExecutor(_THREADS, thread_name_prefix="compacted") as pool:
                list(pool.map(partial(self._commit, before_put=tell_once), ready))
        finally:  # A fault of our own at one of them does not undo the others' commits.
            for found in ready:
                if found.result is not None and found.result.error is None:
                    done(found.result)

    def job_of(self, request: CompactionRequest) -> Job | None:
        """What would be compacted; None where nothing may. Raises what `compact` has as that partition's error."""
        partition = PartitionInWork(request, plan_archive(self._store, request, self.clock))
        if not partition.planned.count:
            return None
        place, copies = self.staging, dict[str, Copy]()
        # Without the directory there are none: the machine's temporary one may have little room.
        if place is None or place.is_dir():
            # Nothing stays behind the caller's last use of the job.
            copies = dict.fromkeys(self._copies([partition], place)[0], Copy.SCANNED)
        return self._make_job(partition, place, copies)

    def _make_job(self, found: PartitionInWork, work_dir: Path | None, copies: Mapping[str, Copy]) -> Job:
        """The job, whose headers are read by the tasks that scan it. `copies`: by id of a segment; none of the others."""
        plan, rules = found.planned, found.request.rules
        state = plan.state
        files = tuple(
            ArchivedLog(self.settings, state.lineage.root, segment, work_dir, copies.get(segment.segment_id, Copy.NONE))
            for segment in plan.segments
        )
        found.job = CompactionJob(
            files,
            tuple(planned_pieces(file.size_bytes, self.split_bytes) for file in files),
            (),
            rules,
            plan.last_batches,
            self.randomness.random_bytes(HASH_KEY_BYTES),
            start_offset=state.deleted_before_offset,
            first_dirty_offset=state.clean_end_offset if state.clean is not None else None,
            surveys=tuple(
                ArchivedSurvey(file, number, state.segments, self.split_bytes, rules.spares_deletes)
                for number, file in enumerate(files)
            ),
        )
        return found.job

    def _copies(self, running: Sequence[PartitionInWork], work_dir: Path | None) -> tuple[dict[str, Copy], int]:
        """By id of a segment what copy there is of it; and how many bytes those take that stay."""
        segments = [segment for found in running for segment in found.planned.segments]
        if work_dir is None:
            return {segment.segment_id: Copy.SCANNED for segment in segments}, 0
        sizes = [log_size_bytes(segment) for segment in segments]
        kept, others = plan_copies(sizes, self.engine.cores, self.free_bytes(work_dir), self.max_staging_bytes)
        copies = {segment.segment_id: Copy.KEPT for segment in segments[:kept]}
        if others:
            copies |= {segment.segment_id: Copy.SCANNED for segment in segments[kept:]}
        return copies, sum(sizes[:kept])

    def _planned(self, partitions: Sequence[PartitionInWork]) -> list[PartitionInWork]:
        store = self._store

        def plan(found: PartitionInWork) -> None:
            try:
                found.plan = plan_archive(store, found.request, self.clock)
                if not found.plan.count:
                    found.succeed(None)
            except SidecarError as error:
                found.fail(error)

        with ThreadPoolExecutor(_THREADS, thread_name_prefix="archive-plans") as pool:
            list(pool.map(plan, partitions))
        return unsettled(partitions)

    def _steps(
        self, running: Sequence[PartitionInWork], run: ScannedRun[ArchivedLog], max_bytes: int
    ) -> tuple[Step, ...]:
        """In which order all is written, so that work files keep to their bound. Partitions that cannot are refused here."""
        needs: dict[int, tuple[SegmentNeed, ...]] = {}
        for number, (found, scan) in enumerate(zip(running, run.results, strict=True)):
            if isinstance(scan, SidecarError):
                found.fail(scan)
                continue
            found.scanned, of_job = scan, tuple(scan.needs())
            try:
                require_room(found.request.root, of_job, max_bytes)
            except StagingTooSmall as error:
                found.fail(error)
            else:
                needs[number] = of_job
        return steps(needs, max_bytes - run.run.waiting_bytes)

    def _rewrite(
        self, running: Sequence[PartitionInWork], run: ScannedRun[ArchivedLog], parts: Parts | None, step: Step
    ) -> None:
        todo = {number: chosen for number, chosen in step.items() if running[number].result is None}
        if todo:
            self.tell("writing the retained records")
        ended = rewritten(run, parts, todo)
        for number in todo:
            found, outputs = running[number], ended[number]
            if isinstance(outputs, SidecarError):
                self._give_up(found, outputs)
            else:
                found.outputs += outputs

    def _finish(self, running: Sequence[PartitionInWork], parts: Parts, place: Path | None, step: Step) -> None:
        for found in (running[job] for job in step):
            # Before the first upload: gc deletes nothing that may be committed as long as this window is open.
            found.window = found.window or self._window()
        todo = [
            (job, number, FinishTask(output, found.request.rules, parts, place, self.randomness))
            for job in step
            if (found := running[job]).result is None
            for number, output in enumerate(found.outputs)
            if not output.unchanged and number not in found.finished
        ]
        if todo:
            self.tell("uploading")
        errors: dict[int, SidecarError] = {}
        answers = self.engine.run(finish, [task for *_, task in todo], uploads=True)
        for (job, number, _), answer in zip(todo, answers, strict=True):
            if isinstance(answer, SidecarError):
                errors[job] = answer
            else:
                running[job].finished[number] = answer
        for job, error in errors.items():
            self._give_up(running[job], error)

    def _give_up(self, found: PartitionInWork, error: SidecarError) -> None:
        found.fail(error)
        self._discard(found)

    def _window(self) -> CommitWindow:
        return CommitWindow.begin(self._store, self.clock, self.randomness)

    def _commit(self, found: PartitionInWork, before_put: Callable[[], None]) -> None:
        request, plan = found.request, found.planned
        log = CommitLog(
            self._store,
            request.root,
            self.clock,
            randomness=self.randomness,
            settle_s=SETTLE_S_PATIENT,
            known=request.newest_commit,
        )

        def attempt() -> int | None:
            self._require_going_on()
            self.confirm(request, plan.state)
            found.is_committing = True
            return commit(log, found, found.window or self._window(), before_put)

        try:
            number = self._patiently(attempt)
        except SidecarError as error:
            found.fail(error)
            if proves_not_committed(error):
                self._discard(found)
        else:
            if found.finished and all(output.unchanged for output in found.outputs):
                self._discard(found)
            found.succeed(number)
            for file in () if found.job is None else found.job.files:
                file.forget_copy()
            if number is not None and plan.strategy_before is not None:
                EVENTS.info(
                    "compaction_strategy_changed",
                    partition=str(plan.state.lineage.topic_partition),
                    old=str(plan.strategy_before),
                    new=str(request.rules.in_use),
                    first_dirty_offset=plan.state.clean_end_offset,
                )

    def _patiently(self, attempt: Callable[[], int | None]) -> int | None:
        """A store that does not answer before a commit is put must not cost hours of work. After the put, `put_once` repeats."""
        left_s, wait_s = SETTLE_S_PATIENT, WAIT_S_FIRST
        while True:
            try:
                return attempt()
            except StoreUnavailable:
                if left_s <= 0:
                    raise
            self.clock.sleep_s(min(wait_s, left_s))
            left_s, wait_s = left_s - wait_s, min(2 * wait_s, WAIT_S_MAX)

    def _discard(self, found: PartitionInWork) -> None:
        """Take uploaded segments away that no commit names. What cannot be deleted now is left to the garbage collection."""
        keys = [key for segment in found.finished.values() for key in (segment.log_key, segment.indexes_key)]
        found.finished.clear()  # First: a thread that still runs must not commit them while they are deleted.
        with suppress(SidecarError):
            self._store.delete([below(found.request.root, key) for key in keys])

    @contextmanager
    def _parts(self) -> Iterator[tuple[Parts, Path | None]]:
        """Where parts wait, and where a task puts a segment together; both are empty afterwards."""
        if self.staging is None:
            stored = StoredParts(self.settings, fresh_id(self.randomness), self.randomness)
            try:
                yield stored, None
            finally:
                with suppress(SidecarError):
                    stored.forget_all()
            return
        with Scratch(self.staging, "compaction") as directory:
            yield LocalParts(directory), directory
