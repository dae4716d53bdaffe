"""A window replay gives what a full replay gives, open transactions too, or nothing; and it reads only what it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from producer_state.digest import SegmentDigest
from producer_state.snapshot import stray_offsets
from producer_state.table import Expiration, ProducerTable
from producer_state.window import Segment
from sidecar.model import TopicPartition
from sidecar.snapshots import Replay
from sidecar.snapshots.folding import PartitionFold
from sidecar.snapshots.jobs import Event, Forgetting, PartitionJob, StateAt, Stopped
from sidecar.snapshots.planning import plan_job
from sidecar.snapshots.starts import StartKind
from sidecar.snapshots.tasks import DigestedSegment, LocalSegment, SegmentTask
from tests.producer_state.logs_in_memory import a_log, full_replay
from tests.producer_state.random_logs import (
    NOW_MS,
    WINDOW_MS,
    Batch,
    RandomLog,
    data,
    digest_batches,
    facts_of,
    marker,
    random_log,
)

SCALE = 1000
"""Makes the margins of `Expiration.with_margins` small against the window of the random logs."""
NOW, WINDOW = NOW_MS * SCALE, WINDOW_MS * SCALE
BY_LOG_TIME = Forgetting(NOW, WINDOW)
AT_NOW = Forgetting(NOW, WINDOW, NOW)


@dataclass
class LogInMemory:
    """A `PartitionLog` over batches. `unindexed`: bases of segments whose newest timestamp is not known."""

    log: RandomLog
    snapshots: dict[int, bytes] = field(default_factory=dict)
    unindexed: frozenset[int] = frozenset()
    damaged: int | None = None
    compacted: bool = True
    recorded: bool | None = None
    read: list[int] = field(default_factory=list)

    topic_partition = TopicPartition("t", 0)
    place = "memory"
    dropped_below = 0
    keeps_undecided = False
    begins_anew: frozenset[int] = frozenset()

    @property
    def first_offset(self) -> int:
        return self.log.boundaries[0]

    log_start_offset = first_offset

    @property
    def bases(self) -> tuple[int, ...]:
        return self.log.boundaries[1:]

    @property
    def snapshot_offsets(self) -> tuple[int, ...]:
        return tuple(self.snapshots)

    @property
    def strays(self) -> frozenset[int]:
        return stray_offsets(self.snapshot_offsets, (self.first_offset, *self.bases))

    def snapshot(self, offset: int) -> tuple[bytes, int]:
        return self.snapshots[offset], NOW

    def recorded_exact(self, _offset: int) -> bool | None:
        return self.recorded

    def spans(self) -> Sequence[Segment]:
        return [Segment(base, self._newest_ms(base, end)) for base, end in self.log.segments()]

    def _newest_ms(self, base: int, end: int) -> int | None:
        newest_ms = int(self.log.between(base, end).max_timestamp_ms.max(initial=-1))
        # A segment without timestamps has no entry in its time index.
        return None if base in self.unindexed or newest_ms < 0 else newest_ms

    def tasks(self, last_offset: int, cuts: Sequence[int]) -> tuple[SegmentTask, ...]:
        return tuple(
            SegmentTask(LocalSegment(f"{base}.log", 1), base, end)
            for base, end in self.log.segments()
            if base < last_offset
        )

    def digested(self, task: SegmentTask) -> DigestedSegment:
        assert task.end_offset is not None
        assert task.base_offset not in self.read, "a segment was read twice"
        self.read.append(task.base_offset)
        if task.base_offset == self.damaged:
            return DigestedSegment((), problem=f"damaged at {task.base_offset}")
        facts = self.log.between(task.base_offset, task.end_offset)
        digest: SegmentDigest = digest_batches(facts, task.base_offset, task.end_offset)
        return DigestedSegment((digest,))


def events_of(log: LogInMemory, job: PartitionJob) -> list[Event]:
    folding = PartitionFold(job, log.digested)
    events = [event for task in job.tasks for event in folding.take(task, log.digested(task))]
    return [*events, *folding.finish()]


def states_of(log: LogInMemory, wanted: Sequence[int], replay: Replay, forgetting: Forgetting) -> list[StateAt]:
    events = events_of(log, plan_job(log, wanted, replay, forgetting))
    return [event for event in events if isinstance(event, StateAt)]


def scaled(log: RandomLog) -> RandomLog:
    batches = tuple(
        replace(batch, timestamp_ms=batch.timestamp_ms * SCALE) if batch.timestamp_ms > 0 else batch
        for batch in log.batches
    )
    return RandomLog(batches, log.boundaries, facts_of(batches))


def agrees(ours: ProducerTable, expected: ProducerTable, *, snapshots_used: bool) -> bool:
    """A broker that wrote a snapshot has forgotten the coordinator and the last batch of whom it had expired then."""
    if not snapshots_used:
        return ours == expected
    if ours.rows["producer_id"].tolist() != expected.rows["producer_id"].tolist():
        return False
    same = all(
        bool(np.array_equal(ours.rows[name], expected.rows[name]))
        for name in ("producer_epoch", "last_timestamp_ms", "current_txn_first_offset")
    )
    known = ours.rows["last_offset"] >= 0
    return same and all(
        bool(np.array_equal(ours.rows[name][known], expected.rows[name][known]))
        for name in ("last_sequence", "last_offset", "offset_delta")
    )


@settings(max_examples=150, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    seed=st.integers(0, 2**32),
    producers=st.sampled_from((1, 3, 20)),
    cleaned=st.sampled_from((True, False, None)),
    forgetting=st.sampled_from((BY_LOG_TIME, AT_NOW)),
    replay=st.sampled_from((Replay.WINDOW, Replay.WINDOW, Replay.FULL)),
    draw=st.data(),
)
def test_what_may_be_written_is_the_filtered_full_replay(
    seed: int, producers: int, cleaned: bool | None, forgetting: Forgetting, replay: Replay, draw: st.DataObject
) -> None:
    """`cleaned` None: only a few control batches are empty.

    With transactions open over the window's beginning, gaps, damage, timestamps out of order, lost snapshots and segments.
    """
    whole_log = scaled(
        random_log(seed, producers=producers, segments=12, cleaned=bool(cleaned), untouched=cleaned is False)
    )
    if is_orderly := draw.draw(st.booleans()):
        whole_log = orderly(whole_log, *sorted(draw.draw(st.sampled_from(whole_log.boundaries)) for _ in range(2)))
    deleted = draw.draw(st.sampled_from((0, 0, 1, 2, 4))) if len(whole_log.boundaries) > 6 else 0
    log = RandomLog(whole_log.batches, whole_log.boundaries[deleted:], whole_log.facts)
    first = log.boundaries[0]
    above = st.sampled_from(log.boundaries[1:])
    bases = st.sampled_from(log.boundaries[:-1])
    offsets, damaged = draw.draw(st.lists(above, max_size=4, unique=True)), draw.draw(st.none() | bases)
    if is_orderly:
        # Below the window, with a snapshot above that tells of open transactions.
        offsets, damaged = [log.boundaries[-1]], draw.draw(st.sampled_from((None, *log.boundaries[1:4])))
    forgetful = draw.draw(st.booleans())
    snapshots = {}
    for offset in offsets:
        snapshots[offset] = full_replay(whole_log, offset)
        if forgetful:
            # By an expiration that is no shorter than ours, and a clock that is not ahead of the log's; see `TrustedSnapshots`.
            written_at = Expiration(min(newest_ms(log, offset), NOW) - draw.draw(st.integers(0, WINDOW)), 2 * WINDOW)
            snapshots[offset] = snapshots[offset].unexpired(written_at)
    beginning_known = True
    if deleted and (beginning_known := draw.draw(st.booleans())):
        snapshots[first] = full_replay(whole_log, first)
        beginning_known = len(snapshots[first]) > 0
    unindexed = frozenset(draw.draw(st.lists(bases, max_size=2)))
    files = {offset: table.to_snapshot() for offset, table in snapshots.items()}
    # An archive records it: these are exact unless their writer had forgotten producers.
    recorded = None if forgetful else draw.draw(st.sampled_from((None, True)))
    source = LogInMemory(log, files, unindexed, damaged, cleaned is not False, recorded)
    wanted = sorted(draw.draw(st.lists(above, min_size=1, unique=True)))
    job = plan_job(source, wanted, replay, forgetting)
    events = events_of(source, job)
    states = {event.table.end_offset: event for event in events if isinstance(event, StateAt) and not event.refused}
    for offset, state in states.items():
        log_time_ms = newest_ms(log, offset)
        # Where a time index is lost, the time below a start is known from the others: fewer producers are left out.
        assert state.log_time_ms == log_time_ms or (unindexed and state.log_time_ms < log_time_ms)
        ours = forgetting.snapshot_table(replace(state, log_time_ms=log_time_ms))
        expected = full_replay(whole_log, offset).unexpired(forgetting.expiration(log_time_ms))
        assert not state.exact or beginning_known or recorded
        if state.exact and not forgetful:
            # Above a trusted snapshot, a window replay does not know who had expired there.
            above_one = any(state.start.offset < each < offset for each in job.trusted)
            assert (but_for_new_ones(ours, expected, log) if above_one else ours) == expected
        elif beginning_known:
            assert agrees(ours, expected, snapshots_used=bool(snapshots))
        witness = min((each for each in snapshots if each >= offset), default=None)
        if witness is not None and all(len(table) for table in snapshots.values()):
            # Also of a transaction of which only deleted segments reported.
            assert_names(ours, expected, snapshots[witness].in_transaction(), first)
    # Only damage inside of what a boundary needs keeps it from coming out.
    for offset in wanted:
        in_window = [start for start in _snapshot_starts(job) if job.windows[offset] <= start < offset]
        needed_from = max(in_window, default=first)
        needed_to = offset if in_window else min((each for each in job.trusted if each >= offset), default=offset)
        blocked = source.damaged is not None and needed_from <= source.damaged < needed_to
        assert (offset in states) or blocked
    for stopped, after in pairwise(events):
        if isinstance(stopped, Stopped):
            # `unreachable` is true.
            assert (after.table.end_offset if isinstance(after, StateAt) else None) == stopped.resumes_at
    assert any(isinstance(event, Stopped) for event in events) == (source.damaged in {t.base_offset for t in job.tasks})


def test_a_snapshot_that_vanishes_after_the_plan_stops_the_replay_that_begins_there() -> None:
    log = random_log(1, segments=12, untouched=True)
    *_, below, wanted = log.boundaries
    source = LogInMemory(log, {below: full_replay(log, below).to_snapshot()}, compacted=False)
    job = replace(plan_job(source, [wanted], Replay.WINDOW, BY_LOG_TIME), table_at=lambda _: None)
    stopped, _ = events_of(source, job)
    assert isinstance(stopped, Stopped)
    assert (stopped.offset, stopped.resumes_at) == (below, None)
    assert f"{below}.snapshot" in stopped.reason


def test_a_producer_that_only_the_snapshot_at_the_logs_start_names_is_known_until_it_expires() -> None:
    """Its batches are deleted. Older records were imported since: the segments at the log's start are older than it is."""
    old_ms, new_ms = NOW - 2 * WINDOW, NOW
    batches = [
        data(0, 1, ts=new_ms),
        *(data(at, 2, sequence=at, ts=old_ms if at < 4 else new_ms) for at in range(1, 6)),
    ]
    whole = RandomLog(tuple(batches), tuple(range(7)), facts_of(batches))
    log = RandomLog(whole.batches, whole.boundaries[1:], whole.facts)
    files = {offset: full_replay(whole, offset).to_snapshot() for offset in (1, 6)}
    (state,) = states_of(LogInMemory(log, files, compacted=False), [5], Replay.WINDOW, BY_LOG_TIME)
    assert (state.table, state.exact) == (full_replay(whole, 5), True)


def test_a_producer_that_comes_back_with_a_marker_alone_is_new() -> None:
    """A broker had expired it. A snapshot between that still names it is not needed: the replay from below is exact."""
    old_ms = NOW - 2 * WINDOW
    batches = [data(0, 1, ts=old_ms), *(data(at, 2, sequence=at, ts=NOW) for at in range(1, 4)), marker(4, 1, ts=NOW)]
    log = RandomLog(tuple(batches), tuple(range(6)), facts_of(batches))
    source = LogInMemory(log, {3: full_replay(log, 3).to_snapshot()}, compacted=False)
    *_, state = states_of(source, [2, 5], Replay.WINDOW, BY_LOG_TIME)
    assert (state.table.end_offset, state.exact, source.read) == (5, True, [1, 2, 3, 4])
    assert [(entry.producer_id, entry.last_offset) for entry in state.table.entries()] == [(1, -1), (2, 3)]
    assert but_for_new_ones(state.table, full_replay(log, 5), log) == full_replay(log, 5)


def test_what_only_deleted_segments_reported_is_not_exact_whatever_is_recorded_of_the_snapshot_above() -> None:
    """A transaction that began below the log's start has ended below that snapshot, which does not name it any more."""
    old_ms = NOW - 2 * WINDOW
    filler = [data(at, 2, sequence=at, ts=old_ms if at < 4 else NOW) for at in range(1, 6)]
    batches = [data(0, 1, ts=old_ms, txn=True), *filler, marker(6, 1, ts=NOW)]
    whole = RandomLog(tuple(batches), tuple(range(8)), facts_of(batches))
    log = RandomLog(whole.batches, whole.boundaries[1:], whole.facts)
    source = LogInMemory(log, {7: full_replay(whole, 7).to_snapshot()}, compacted=False, recorded=True)
    (state,) = states_of(source, [6], Replay.WINDOW, BY_LOG_TIME)
    assert state.start is not None
    assert (state.start.kind, state.exact) == (StartKind.WINDOW, False)


def orderly(log: RandomLog, from_offset: int, to_offset: int) -> RandomLog:
    """Timestamps ascend. Half of the producers are silent between two offsets, and end no transaction above."""

    def changed(batch: Batch, index: int) -> Batch:
        timestamp_ms = NOW - 3 * WINDOW + 3 * WINDOW * index // len(log.batches)
        is_between = from_offset <= batch.base_offset and (batch.base_offset < to_offset or batch.control)
        if batch.producer_id % 2 == 0 and is_between:
            return Batch(batch.base_offset, batch.last_offset, batch.count, timestamp_ms=timestamp_ms)
        return replace(batch, timestamp_ms=timestamp_ms)

    batches = tuple(changed(batch, index) for index, batch in enumerate(log.batches))
    return RandomLog(batches, log.boundaries, facts_of(batches))


def but_for_new_ones(ours: ProducerTable, expected: ProducerTable, log: RandomLog) -> ProducerTable:
    """With coordinators and last batches of producers that a broker had expired before they came back: for it, they are new."""
    entries = []
    for entry in ours.entries():
        known, first = expected.get(entry.producer_id), entry.current_txn_first_offset
        if known is not None and first is not None and entry.coordinator_epoch < 0:
            if had_expired(log, entry.producer_id, first):
                entry = replace(entry, coordinator_epoch=known.coordinator_epoch)
        elif known is not None and entry.last_offset < 0 <= known.last_offset:
            # It came back with a marker alone.
            offsets = [batch.base_offset for batch in log.batches if batch.producer_id == entry.producer_id]
            if any(had_expired(log, entry.producer_id, at) for at in offsets if at > known.last_offset):
                last = {name: getattr(known, name) for name in ("last_sequence", "last_offset", "offset_delta")}
                entry = replace(entry, **last)
        entries.append(entry)
    return ProducerTable.from_entries(ours.end_offset, entries)


def had_expired(log: RandomLog, producer_id: int, offset: int) -> bool:
    """Whether a broker had expired a producer before its batch at an offset, by the newest timestamp below."""
    before = [batch for batch in log.batches if batch.base_offset < offset]
    heard = [batch for batch in before if batch.producer_id == producer_id and batch.count]
    times = [batch.timestamp_ms for batch in before if batch.base_offset >= log.boundaries[0]]
    return bool(heard) and not BY_LOG_TIME.expiration(max(times, default=-1)).keeps(heard[-1].timestamp_ms)


def newest_ms(log: RandomLog, offset: int) -> int:
    return int(log.between(log.boundaries[0], offset).max_timestamp_ms.max(initial=-1))


def assert_names(ours: ProducerTable, expected: ProducerTable, open_above: ProducerTable, first: int) -> None:
    """The transactions that are open at both of the latter, from the same offset on, are open in the first one.

    Of one that began below the log's start, the coordinator is known as well.
    """
    names = ["producer_id", "producer_epoch", "current_txn_first_offset", "coordinator_epoch"]
    both = np.intersect1d(expected.in_transaction().rows[names], open_above.rows[names])
    found = ours.only(both["producer_id"]).rows[names]
    assert found[names[:3]].tolist() == both[names[:3]].tolist()
    below = both["current_txn_first_offset"] < first
    assert found[below].tolist() == both[below].tolist()


def _snapshot_starts(job: PartitionJob) -> list[int]:
    return [start.offset for start in job.starts if start.kind is StartKind.SNAPSHOT]


def test_a_trusted_snapshot_tells_what_damage_below_it_hides_from_a_later_window() -> None:
    """At 3 and 4 the last batch of producer 8 is not known. At 6 that of producer 7 is: the snapshot at 4 names it."""
    earlier, later = NOW - 2 * WINDOW, NOW
    log = a_log(
        [data(0, 7, ts=1, txn=True), data(1, 8, ts=1, txn=True)],
        [marker(2, 8, ts=earlier)],
        [data(3, 9, ts=earlier)],
        [data(4, 10, ts=earlier)],
        [marker(5, 7, ts=later)],
    )
    snapshots = {offset: full_replay(log, offset).to_snapshot() for offset in (4, 6)}
    source = LogInMemory(log, snapshots, damaged=0)
    below, above = states_of(source, [3, 6], Replay.WINDOW, BY_LOG_TIME)
    assert (below.table.end_offset, bool(below.refused)) == (3, True)
    assert (above.table.end_offset, above.refused) == (6, "")
    assert BY_LOG_TIME.snapshot_table(above) == full_replay(log, 6).unexpired(BY_LOG_TIME.expiration(later))
    assert sorted(source.read) == list(log.boundaries[:-1])
