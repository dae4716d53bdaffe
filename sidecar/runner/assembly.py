"""Builds the run's context from settings: the only place where components meet configuration."""

import os
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from threading import Event

from producer_state.replay import replay
from producer_state.table import ProducerTable
from sidecar.clock import Clock, SystemClock
from sidecar.commits.attempts import discard_uncommitted
from sidecar.commits.commit_window import ORPHAN_MS
from sidecar.config import Settings
from sidecar.discovery.partition_directory import ListingCache
from sidecar.discovery.scan import Scan, scan_log_dirs
from sidecar.errors import SidecarError, StoreUnsafe
from sidecar.event_log import EVENTS
from sidecar.host import process_store
from sidecar.host.archive_cache import ArchiveCache
from sidecar.host.journal import Journal, state_directory
from sidecar.host.pinned_files import PinnedFiles
from sidecar.logformat.batches import scan_bytes
from sidecar.metrics import MeteredStore, Metrics
from sidecar.partition.domain_events import Emit
from sidecar.partition.plan import Settling
from sidecar.partition.run_limits import RunLimits
from sidecar.ports import ObjectStore
from sidecar.reporting.log_sink import fan_out, log_event
from sidecar.runner.configured_facts import open_facts
from sidecar.runner.context import RunContext
from sidecar.segment.reading import ReadSegment, read_segment
from sidecar.spark.scratch import Scratch
from sidecar.storage.bandwidth import BandwidthLimit, IoBudget
from sidecar.storage.opening import open_store
from sidecar.storage.probe import UPLOAD_BYTES, probe_store, probing_store
from sidecar.storage.retry import StoreLiveness

PATIENCE_S = 30.0
"""A command asks a store that does not answer for so long, besides what store.retry allows for each request."""
TASK_S = 120.0
"""A task begins no segment after that: partitions with a backlog take turns, as retention may be faster than one is archived."""
OLD_ATTEMPTS_S = 10.0
"""So long a start ends attempts of before: nothing is pinned yet. The next start goes on."""


def scanner(settings: Settings, clock: Clock | None = None) -> Scan:
    """A function that lists the log directories again. With a clock: only where something has changed since its last call."""
    cache = None if clock is None else ListingCache(clock)
    return partial(scan_log_dirs, settings.broker.log_dirs, settings.topics.filter, cache=cache, require_formatted=True)


def policy_of(settings: Settings, *, repeats: bool) -> RunLimits:
    """The numbers that shape the work. `repeats`: checks follow one another, so that one need not plan everything."""
    policy = RunLimits(
        workers=settings.run.workers,
        uploads_ahead=settings.run.uploads_ahead,
        settling=Settling(settings.broker.settle_ms, settings.broker.snapshot_grace_ms),
        producer_id_expiration_ms=settings.broker.producer_id_expiration_ms,
        expiration_is_given="producer_id_expiration_ms" in settings.broker.model_fields_set,
        index_interval_bytes=settings.topics.index_interval_bytes,
        record_lost=settings.run.record_lost,
        spares_cache=settings.run.spare_page_cache,
        readers_per_disk=settings.run.readers_per_disk,
        pause_above_percent=settings.run.pause_above_io_pressure_percent,
    )
    if not repeats:
        return policy
    run = settings.run
    return replace(policy, max_queue=run.max_queue, task_s=TASK_S, retry_wait_s=run.retry_wait_s)


class ChangingSettings:
    """Settings that components hold and that a reload replaces in place: overrides of topic policies, and the I/O limits."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.policies = list(settings.topics.policies)
        self.budget = IoBudget.of(settings.store, clock)

    def adopt(self, settings: Settings) -> None:
        self.policies[:] = settings.topics.policies
        self.budget.adopt(settings.store)


def _note_if_new(store: ObjectStore, cluster_id: str) -> None:
    """A mistyped URL or cluster id would begin another archive, and no error would show it. Raises StoreError."""
    if not any(store.list_folders(f"{cluster_id}/")):
        EVENTS.warning(
            "archive_is_new",
            archive=store.url,
            cluster_id=cluster_id,
            effect="nothing of this cluster is archived there: the first upload begins a new archive",
            action="if the cluster has an archive already, stop, correct store.url or the cluster id, and delete what was uploaded",
        )


def _note_slow_probe(uploads: BandwidthLimit) -> None:
    """A probe that waits for the upload limit looks like a start that hangs."""
    limit = uploads.bytes_per_s
    if limit is not None and limit < UPLOAD_BYTES:
        EVENTS.info(
            "store_probe_limited",
            upload_bytes=UPLOAD_BYTES,
            bandwidth_bytes_per_s=limit,
            about_s=round(UPLOAD_BYTES / limit, 1),
            effect="nothing is committed before this probe of the store ends",
        )


@contextmanager
def _loading_kernels() -> Iterator[None]:
    """Half a second that need not be waited for while the store is probed. A fault of the kernels is raised at the block's end."""

    def load() -> None:
        from sidecar.logformat.bodies.building import build_empty_batch  # It loads codecs, which `run` does not need.

        # As compaction leaves them. To walk it, and follow its producer, calls every kernel once.
        batch = build_empty_batch(base_offset=0, last_offset=0, producer_id=1, producer_epoch=0, base_sequence=0)
        for columns in scan_bytes(batch, base_offset=0):
            replay(ProducerTable.blank(0), columns.facts())

    with ThreadPoolExecutor(1, thread_name_prefix="warm-up") as pool:
        loaded = pool.submit(load)
        yield
        loaded.result()


def _clear_if_unsafe(context: RunContext) -> None:
    """Where the probe refused the store, nothing was committed: what was uploaded meanwhile is removed. Raises StoreError."""
    try:
        context.require_safe_store()
    except StoreUnsafe:
        discard_uncommitted(context)
        raise


@contextmanager
def open_tools(
    settings: Settings,
    *,
    read_only: bool = False,
    repeats: bool = False,
    clock: Clock | None = None,
    metrics: Metrics | None = None,
    sinks: Sequence[Emit] = (),
    stop: Event | None = None,
    beat: Callable[[], None] = lambda: None,
    changing: ChangingSettings | None = None,
    answers: StoreLiveness | None = None,
    reader: ReadSegment = read_segment,
) -> Iterator[RunContext]:
    """Everything that archiving works with. The store has shown that it can do what the archive needs, but see `probing_store`.

    Args:
        sinks: get domain events, besides the log, the metrics and the archive cache.
        changing: settings that a reload replaces later. Default: nothing is replaced.
        answers: records whether the store answers.
        read_only: nothing will be archived: the store is not probed, and nothing is written to the state directory.

    The others are as in `policy_of` and `RunContext`. Raises SettingsError, LogDirsUnformatted, StoreError.
    """
    clock = clock or SystemClock()
    changing = changing or ChangingSettings(settings, clock)
    answers, stop = answers or StoreLiveness(clock), stop or Event()
    with ExitStack() as resources:
        facts = resources.enter_context(open_facts(settings, clock, changing.policies))
        metrics = metrics or Metrics(clock)
        uploads, reads = changing.budget.uploads, changing.budget.reads
        uploads.note = metrics.store.watch("upload", lambda: uploads.bytes_per_s)
        reads.note = metrics.store.watch("read", lambda: reads.bytes_per_s)
        unmetered = open_store(settings.store, clock, changing.budget, answers)
        store = MeteredStore(unmetered, metrics.store)
        resources.callback(store.close)
        resources.enter_context(process_store.lent(settings.store, store, changing.budget))
        require_safe_store: Callable[[], object] | None = None
        if read_only:
            directory = resources.enter_context(Scratch(None, "dry-run")) / "journal"
        else:
            # One state directory may serve several archives, one after the other.
            directory = state_directory(settings.run.state_path, store.url)
        # It locks the directory. After the probe, which may take long, a `backfill` that began later could have the lock.
        journal = resources.enter_context(closing(Journal(directory)))
        if not read_only:
            _note_slow_probe(uploads)
            single_writer = settings.store.single_writer
            if repeats:
                # `run` reports what it waits for, and tries again itself. Its first segment, maybe hours later, loads the kernels.
                with metrics.store.call("probe"):
                    probe_store(unmetered, single_writer=single_writer, clock=clock)
            else:
                probing = probing_store(
                    unmetered, single_writer=single_writer, clock=clock, patience_s=PATIENCE_S, stop=stop
                )
                with _loading_kernels():
                    require_safe_store = resources.enter_context(probing)
        _note_if_new(store, facts.cluster_id())
        memory = ArchiveCache(None if read_only else directory)
        emit = fan_out(metrics.handle, memory.noting_losses(clock), *sinks, log_event)
        pinned = PinnedFiles(emit=emit)
        resources.callback(pinned.release)
        metrics.broker.pinned_deleted.set_function(pinned.unlinked_bytes)
        resources.callback(memory.close)
        if (lost_ms := memory.last_loss_ms()) is not None:
            metrics.broker.last_loss.at_ms = lost_ms
        context = RunContext(
            store=store,
            facts=facts,
            clock=clock,
            metrics=metrics,
            journal=journal,
            policy=policy_of(settings, repeats=repeats),
            instance=f"{socket.gethostname()}/{os.getpid()}",
            emit=emit,
            stop=stop,
            beat=beat,
            is_store_silent=answers.is_silent,
            pinned=pinned,
            memory=memory,
            budget=changing.budget,
            read_segment=reader,
            require_safe_store=require_safe_store or (lambda: None),
        )
        if repeats:
            # What is so old is never resumed. Where the topic was deleted, or another broker leads, no task would end it.
            discard_uncommitted(context, begun_until_ms=clock.now_ms() - ORPHAN_MS, within_s=OLD_ATTEMPTS_S)
        try:
            yield context
        except SidecarError:
            _clear_if_unsafe(context)
            raise
        _clear_if_unsafe(context)
