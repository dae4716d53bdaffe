"""State(E) for every segment boundary E of a partition, from digests of its segments and what snapshots there are.

Two roads. *Fold*: from a trusted snapshot or the log's start, through every segment. *Window*: from the first segment
in which an unexpired producer without open transaction can have written last; what such a start cannot know is
fetched by reading older segments backwards, until every question is answered. Both give the same producers once the
expired ones are dropped; the window only reads less.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from producer_state.digest import apply
from producer_state.holes import answer, questions_of
from producer_state.partition_log import PartitionLog, Refused, Segment, trusted_table
from producer_state.table import Expiration, ProducerTable


@dataclass(frozen=True, slots=True)
class RebuiltState:
    """State at a boundary and where it comes from.

    `table` may still hold expired producers, and lacks only such as are expired. The replay began at `start_offset`:
    from a trusted snapshot if `from_snapshot`; else from nothing but, if `windowed`, what older segments had to tell.
    `exact` is False where a cleaner had taken away batches that were needed, so that the broker may know more.
    """

    table: ProducerTable
    expiration: Expiration
    start_offset: int
    from_snapshot: bool
    windowed: bool
    exact: bool

    @property
    def end_offset(self) -> int:
        """The boundary."""
        return self.table.end_offset

    @property
    def window_ms(self) -> int | None:
        """Producers idle for longer were left out; None if none were."""
        return self.expiration.window_ms

    def unexpired(self) -> ProducerTable:
        """The producers that a loader keeps."""
        return self.table.unexpired(self.expiration)

    def to_snapshot(self) -> bytes:
        """Bytes of `<end_offset>.snapshot`."""
        return self.unexpired().to_snapshot()


@dataclass(frozen=True, slots=True)
class Start:
    """Where a replay begins. `refused`: snapshots passed over, and why."""

    table: ProducerTable
    from_snapshot: bool
    windowed: bool
    refused: tuple[Refused, ...] = ()


def reconstruct(
    log: PartitionLog,
    boundaries: Collection[int],
    expiration: Expiration,
    *,
    later_markers: Collection[int] | None = None,
    high_watermark: int | None = None,
) -> Iterator[RebuiltState]:
    """The states at these boundaries (segment bases, or the end of the last segment), ascending, from one pass.

    What `log.digest` raises passes through, after all states below the segment in question on the fold road. Raises
    BatchProblem; ValueError for boundaries or segments that do not fit.

    Args:
        expiration: which producers need not be known.
        later_markers: producers of all markers from the last boundary up to a last stable offset that is at or above
            all boundaries (later transaction indexes name only the aborted ones). None if not known: then an open
            transaction can have begun anywhere, and the whole log is folded.
        high_watermark: snapshots above it are not trusted. None: not known.
    """
    wanted = sorted(set(boundaries))
    _check(log.segments, wanted)
    if not wanted:
        return
    start = choose_start(log, wanted[0], expiration, later_markers is not None, high_watermark)
    if start.windowed:
        yield from _through_window(log, wanted, expiration, start.table.end_offset, later_markers or (), high_watermark)
    else:
        yield from _fold(log, wanted, expiration, start)


def choose_start(
    log: PartitionLog, first_boundary: int, expiration: Expiration, windowed: bool, high_watermark: int | None = None
) -> Start:
    """The latest place from which every state at or above `first_boundary` can be told.

    The newest trusted snapshot, unless it lies below the window; else the window's start (if `windowed`); else the log's start.
    """
    log_start = log.segments[0].base_offset
    earliest = min(_window_start(log, expiration), first_boundary) if windowed else log_start
    refused: list[Refused] = []
    bases = {segment.base_offset for segment in log.segments} | {log.segments[-1].end_offset}
    for offset in sorted(log.snapshot_offsets, reverse=True):
        if earliest <= offset <= first_boundary and offset in bases:
            table = trusted_table(log, offset, expiration, high_watermark)
            if isinstance(table, ProducerTable):
                return Start(table, from_snapshot=True, windowed=False, refused=tuple(refused))
            refused.append(table)
    return Start(ProducerTable.blank(earliest), False, earliest > log_start, tuple(refused))


def _window_start(log: PartitionLog, expiration: Expiration) -> int:
    """Base of the earliest segment with a timestamp that is not expired: timestamps do not ascend, so all are looked at."""
    for segment in log.segments:
        newest_ms = segment.max_timestamp_ms
        if newest_ms is None:
            newest_ms = log.digest(segment).coverage.max_producer_timestamp_ms
        if expiration.keeps(newest_ms):
            return segment.base_offset
    return log.segments[-1].end_offset


def _fold(log: PartitionLog, wanted: Sequence[int], expiration: Expiration, start: Start) -> Iterator[RebuiltState]:
    """Memory: one table and one digest."""
    table, exact, due = start.table, True, frozenset(wanted)
    start_offset = table.end_offset
    if start_offset in due:
        yield RebuiltState(table, expiration, start_offset, start.from_snapshot, False, exact)
    for segment in _between(log, start_offset, wanted[-1]):
        digest = log.digest(segment)
        table = apply(table, digest)
        exact = exact and digest.exact
        if segment.end_offset in due:
            yield RebuiltState(table, expiration, start_offset, start.from_snapshot, False, exact)


def _through_window(
    log: PartitionLog,
    wanted: Sequence[int],
    expiration: Expiration,
    start_offset: int,
    later_markers: Collection[int],
    high_watermark: int | None,
) -> Iterator[RebuiltState]:
    """Memory: the digests of the window."""
    digests = [log.digest(segment) for segment in _between(log, start_offset, wanted[-1])]
    questions = questions_of(digests, start_offset, wanted, later_markers)
    answered = answer(log, questions, start_offset, expiration, high_watermark)
    table, exact = answered.table, answered.uncleaned
    if start_offset in wanted:
        yield RebuiltState(table, expiration, start_offset, False, True, exact)
    for digest in digests:
        table = apply(table, digest)
        exact = exact and digest.exact
        if table.end_offset in wanted:
            yield RebuiltState(table, expiration, start_offset, False, True, exact)


def _between(log: PartitionLog, start_offset: int, end_offset: int) -> list[Segment]:
    return [segment for segment in log.segments if start_offset <= segment.base_offset < end_offset]


def _check(segments: Sequence[Segment], wanted: Sequence[int]) -> None:
    if not segments:
        raise ValueError("a partition without segments has no boundaries")
    for before, after in pairwise(segments):
        if before.end_offset != after.base_offset:
            raise ValueError(f"a segment ends at {before.end_offset}, the next begins at {after.base_offset}")
    known = {segment.base_offset for segment in segments} | {segments[-1].end_offset}
    strangers = [offset for offset in wanted if offset not in known]
    if strangers:
        raise ValueError(f"no segment begins or ends at {', '.join(map(str, strangers))}")
