"""What is asked of a partition's segments, and what comes of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from producer_state.exactness import is_exact
from producer_state.table import Expiration, ProducerTable
from sidecar.model import TopicPartition
from sidecar.snapshots.starts import Start
from sidecar.snapshots.tasks import SegmentTask


@dataclass(frozen=True, slots=True)
class PartitionJob:
    """Fold the tasks onto the state at their start; report at the boundaries.

    `starts`: where a replay may begin, ascending. It begins at the first, goes on over adjacent tasks, and begins again where
    tasks are left out or a segment is damaged.
    `windows`: where the window of a boundary begins. A WINDOW start above it gives nothing there; a boundary that is not named
    takes any start.
    `older`: all segments below the last boundary, for what a WINDOW start must find out about open transactions.
    `trusted`: snapshots that tell which transactions are open at their offset. A replay from a WINDOW start goes up to the next.
    `beginning_known`: of the log's start; see `exactness`. It counts for what is read down to there.
    `table_at`: the state at a LOG_START or SNAPSHOT start, or a trusted snapshot; None if the file has vanished.
    `compacted`: offsets may be missing anywhere. Else nothing is known above the first that is.
    `forgotten`: boundaries at which no producer is known, on purpose, nor above the last one any that was before; but
    for those in a transaction, if `keeps_undecided`. `begins_anew`: ends of segments above which only those go on who are in a
    transaction.
    """

    topic_partition: TopicPartition
    starts: tuple[Start, ...]
    tasks: tuple[SegmentTask, ...]
    boundaries: frozenset[int]
    compacted: bool = False
    forgotten: frozenset[int] = frozenset()
    keeps_undecided: bool = False
    begins_anew: frozenset[int] = frozenset()
    windows: Mapping[int, int] = field(default_factory=dict)
    older: tuple[SegmentTask, ...] = ()
    trusted: frozenset[int] = frozenset()
    beginning_known: bool = True
    table_at: Callable[[int], ProducerTable | None] = ProducerTable.blank


@dataclass(frozen=True, slots=True)
class StateAt:
    """State at a boundary, expired producers included, and the largest batch timestamp below it as far as known (-1: none).

    `start`: where its replay began. `cleaned`: a cleaner has been where it was read.
    `transactions_known` False: a transaction that began below the start can be open, and nothing shows it. A broker that loads such
    a state would give consumers undecided records: it may not be written, and confirms no snapshot.
    `dropped`: who was known below has been left out on purpose.
    """

    table: ProducerTable
    log_time_ms: int
    start: Start
    cleaned: bool = False
    transactions_known: bool = True
    dropped: bool = False

    @property
    def exact(self) -> bool:
        """Whether it lacks nothing."""
        beginning_known = self.dropped or self.start.beginning_known
        return self.transactions_known and is_exact(beginning_known=beginning_known, cleaned=self.cleaned)

    @property
    def refused(self) -> str:
        """Why it may not be written, "" if it may."""
        if self.transactions_known:
            return ""
        return (
            f"snapshots whose replay began at offset {self.start.offset} are not written: a transaction that began "
            "below it may be open there. Damage in the log hides it, or the snapshot above that would name it was "
            "not reached or has vanished. If no damage is reported, run the command again. --replay full creates the "
            "snapshots below the damage"
        )


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A boundary at which no batch ends."""

    offset: int
    reason: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """No state above `offset` is known; `resumes_at` is the next boundary at which one is, None: at none."""

    offset: int
    reason: str
    resumes_at: int | None = None

    @property
    def problem(self) -> str:
        """For people: of which boundaries there is no state, why, and what to do, which the reason ends with."""
        end = "" if self.resumes_at is None else f" and below {self.resumes_at}"
        return f"snapshots above offset {self.offset}{end} cannot be created: {self.reason}"


@dataclass(frozen=True, slots=True)
class Ended:
    """Nothing more comes of this partition. `read_bytes`: of its segments, those below windows included."""

    read_bytes: int


Event: TypeAlias = StateAt | Misplaced | Stopped | Ended


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Which producers a snapshot leaves out.

    `as_of_ms` None: those that were idle for the expiration time when the newest batch below the boundary was written, or
    at `now_ms` if that is earlier; with margins. No loader's clock will be behind that, and the bytes do not depend on
    when they are written. Else: those expired at that very moment.
    """

    now_ms: int
    producer_id_expiration_ms: int | None
    as_of_ms: int | None = None

    def snapshot_table(self, state: StateAt) -> ProducerTable:
        """The producers that the snapshot at this state names."""
        return state.table.unexpired(self.expiration(state.log_time_ms))

    @property
    def expiration_now(self) -> Expiration:
        """Those whom a broker that starts now would not know."""
        return Expiration(self.now_ms, self.producer_id_expiration_ms)

    def expiration(self, log_time_ms: int) -> Expiration:
        if self.as_of_ms is not None:
            return Expiration(self.as_of_ms, self.producer_id_expiration_ms)
        return Expiration.with_margins(min(log_time_ms, self.now_ms), self.producer_id_expiration_ms)


def also_said(said: str, what: str) -> str:
    """Both, for people; what was said already is not said again."""
    if what in said:
        return said
    return f"{said}; {what}" if said else what
