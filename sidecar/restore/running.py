"""Carries a plan out: segments in parallel, then each partition's end, then the names."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from threading import Event, Lock
from typing import Any

from sidecar.errors import PartitionError, StagingFull
from sidecar.ports import ObjectStore
from sidecar.reporting.advice import advised
from sidecar.reporting.progress import Progress
from sidecar.restore.checkpoint_files import enter_into_checkpoints
from sidecar.restore.finishing import finish_partition
from sidecar.restore.note import CommandNote
from sidecar.restore.outcome import PartitionOutcome
from sidecar.restore.plan import SegmentPlan
from sidecar.restore.request import RestoreRequest
from sidecar.restore.seal import seal_of
from sidecar.restore.segments.fetching import PartitionRestore, RestoredSegment, fetch_segment
from sidecar.restore.staging import StagedPartition, forget, unfinished

WORKERS = 4
"""Segments fetched at once. Each holds a chunk of its log and, for a moment, its small parts."""


class _Job:
    """One partition on its way."""

    def __init__(self, outcome: PartitionOutcome, work: PartitionRestore) -> None:
        self.outcome = outcome
        self.work = work
        self.restored: dict[int, RestoredSegment] = {}


class Run:
    """The three steps, in this order, under the log dir's lock."""

    def __init__(
        self,
        store: ObjectStore,
        request: RestoreRequest,
        outcomes: Sequence[PartitionOutcome],
        workers: int,
        progress: Callable[[Progress], None],
    ) -> None:
        self._request = request
        self._outcomes = outcomes
        self._note = CommandNote(request.log_dir, request.topic)
        self._workers = workers
        self._progress = progress
        self._stop = Event()
        self._lock = Lock()
        self._done, self._total, self._bytes_done, self._bytes_total = 0, 0, 0, 0
        self._jobs = [
            _Job(
                outcome,
                PartitionRestore(
                    store,
                    outcome.plan,
                    outcome.decisions,
                    StagedPartition(request.log_dir, outcome.plan.topic_partition),
                    self._stop,
                    self._beat,
                ),
            )
            for outcome in outcomes
            if not outcome.is_done and outcome.decisions is not None
        ]

    def fetch(self) -> None:
        """Fetch every segment that an earlier run has not. Raises StagingFull, StoreError."""
        # All of them before the first byte: a broker that is started too early refuses to, whichever was finished.
        missing = [(job, plan) for job in self._jobs for plan in self._begun(job)]
        self._total, self._bytes_total = len(missing), sum(plan.size_bytes for _, plan in missing)
        self._require_room()
        self._show("")
        pool = ThreadPoolExecutor(self._workers, thread_name_prefix="restore")
        try:
            waiting = [pool.submit(self._fetch_one, job, plan) for job, plan in missing]
            for future in wait(waiting, return_when=FIRST_EXCEPTION).done:
                future.result()
        finally:
            self._stop.set()
            pool.shutdown(cancel_futures=True)

    def _begun(self, job: _Job) -> list[SegmentPlan]:
        """Make the partition's directory, or go on in it; the segments that are missing there."""
        if job.outcome.problem:
            job.work.staged.hold()
            return []
        try:
            job.work.begin()
            present = job.work.staged.sizes()
        except PartitionError as error:
            job.outcome.problem = advised(error)
            return []
        for plan in job.work.plan.segments:
            if found := job.work.earlier(plan, present):
                job.restored[plan.segment.base_offset] = found
        job.outcome.segments_resumed = len(job.restored)
        return [plan for plan in job.work.plan.segments if plan.segment.base_offset not in job.restored]

    def _require_room(self) -> None:
        free_bytes = shutil.disk_usage(self._request.log_dir).free
        if self._bytes_total > free_bytes:
            raise StagingFull(
                f"{self._request.log_dir}: {self._bytes_total} bytes are to be written, {free_bytes} are free on the disk: make "
                f"room and run the same command again, or restore fewer partitions"
            )

    def _fetch_one(self, job: _Job, plan: SegmentPlan) -> None:
        if self._stop.is_set() or job.outcome.problem:
            return
        try:
            job.restored[plan.segment.base_offset] = fetch_segment(job.work, plan)
        except PartitionError as error:
            job.outcome.problem = job.outcome.problem or advised(error)
            return
        with self._lock:
            self._done += 1
        self._show(f"{job.work.plan.topic_partition} {plan.segment.base_offset}")

    def _beat(self, size_bytes: int) -> None:
        with self._lock:
            self._bytes_done += size_bytes
        self._show("")

    def _show(self, latest: str) -> None:
        with self._lock:
            self._progress(Progress(self._done, self._total, self._bytes_done, self._bytes_total, latest))

    def finish(self) -> None:
        """Write what each partition needs besides its segments. Raises StagingFull, StoreError."""
        for job in self._jobs:
            if job.outcome.problem:
                continue
            restored = tuple(job.restored[plan.segment.base_offset] for plan in job.work.plan.segments)
            try:
                job.outcome.log = finish_partition(job.work, restored, self._request.open_transactions)
            except PartitionError as error:
                job.outcome.problem = advised(error)

    def swap_in(self) -> None:
        """Checkpoints first: an entry for a log that is not there yet does no harm, a log without its entry would."""
        whole = [job for job in self._jobs if job.outcome.log is not None]
        logs = {job.work.plan.topic_partition: job.outcome.log for job in whole if job.outcome.log is not None}
        if logs:
            enter_into_checkpoints(self._request.log_dir, logs)
            self._note.add({job.work.plan.topic_partition: self._sealed(job.work) for job in whole})
        for job in whole:
            try:
                job.work.staged.swap_in()
            except PartitionError as error:
                job.outcome.log, job.outcome.problem = None, advised(error)
        if any(outcome.problem for outcome in self._outcomes):
            return  # The note stays: a further run must know what was done.
        if unfinished(self._request.log_dir, self._request.topic):
            return  # So it does for the command that made those.
        for directory in self._note.finished():
            forget(directory)
        self._note.remove()

    def _sealed(self, work: PartitionRestore) -> tuple[int, dict[str, Any]]:
        seal = seal_of(work.decisions, self._request, work.plan, work.staged.files())
        return work.staged.directory_id, seal
