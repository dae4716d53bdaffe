"""Schedules: what brokers, sidecars, `gc` and time do, step by step, all from one seed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeAlias

from tests.histories.faults import Fault
from tests.simulation.cluster import LogShape

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
UNLIMITED: Final = 1_000_000
ENOUGH_PINS: Final = 1_000
"""So many segments never wait at once."""


@dataclass(frozen=True, slots=True)
class Append:
    """Producers write so many batches. `lags`: followers do not fetch them."""

    seed: int
    batches: int = 1
    lags: bool = False
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Roll:
    """A broker rolls its active segment."""

    broker: int
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Retention:
    """A broker deletes so many of its oldest segments."""

    broker: int
    segments: int = 1
    partition: int = 0


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """Up to such a share of what is below the high watermark."""

    share: float
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Shrink:
    """The follower leaves the in-sync replicas. It is back with its next fetch."""

    partition: int = 0


@dataclass(frozen=True, slots=True)
class Fetch:
    """Followers copy all that the leader has, and truncate what it does not have."""

    partition: int = 0


@dataclass(frozen=True, slots=True)
class NewLeader:
    """The other broker leads, if it is in sync. `fetches`: whether the old leader follows at once."""

    fetches: bool = True
    partition: int = 0


@dataclass(frozen=True, slots=True)
class UncleanLeader:
    """The next broker leads, in sync or not: what it lacks is lost."""

    partition: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """A broker's replica goes to another of its log dirs."""

    broker: int
    number: int
    partition: int = 0


@dataclass(frozen=True, slots=True)
class LoseFile:
    """A segment's `.log` is gone from a broker's disk, one between others. Its followers have it."""

    broker: int
    number: int = 0
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Touch:
    """The time of a segment's `.log` changes on a broker's disk, and none of its bytes."""

    broker: int
    number: int = 0
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Clean:
    """A broker's cleaner makes one of so many rolled segments. `is_cut_off`: the new file has no name until the next such step."""

    broker: int
    first: int
    count: int = 1
    is_cut_off: bool = False
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Recreate:
    """The topic is deleted, and created again."""

    partition: int = 0


@dataclass(frozen=True, slots=True)
class Away:
    """From now on a broker does not answer its sidecar, or answers again."""

    broker: int
    is_away: bool = True


@dataclass(frozen=True, slots=True)
class Disk:
    """From now on a log dir of a broker is gone or there, and its disks have this much room. `fails`: its open files do, too."""

    broker: int
    number: int = 0
    is_away: bool = False
    free_share: float = 1.0
    fails: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """Time passes."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Jump:
    """The wall clock of a sidecar is moved."""

    broker: int
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Restart:
    """Of a sidecar, None for the leader's. `forgets`: its volume is gone. `stops`: it is asked to end, and not just killed.

    Within a round of that sidecar nothing happens but that it is asked to end.
    """

    broker: int | None
    forgets: bool = False
    stops: bool = False


@dataclass(frozen=True, slots=True)
class Land:
    """Small puts and DELETEs that failed, and are still on their way, take hold now."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """Within a call of a sidecar: its other threads and its loop make so many moves."""

    moves: int


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """These steps happen when a process makes its next call after so many. `operation`: only such calls count; "" for all."""

    call: int
    steps: tuple[Step, ...]
    operation: str = ""


@dataclass(frozen=True, slots=True)
class Round:
    """A sidecar looks at its disk and archives. `broker`: None for the leader.

    `is_asleep`: its broker says what it said at the last round, perhaps that it leads. `is_late`: see `SimLink`. `moves`: it
    gets no further than that, and goes on in a later round; None: to the end. `order`, `checks`: see `Sidecar.run`.
    `lies`, `misreads`, `is_unsafe`: see `SimLink`. `full`: writes of the journal from the first to the last that find no room.
    """

    broker: int | None = None
    faults: tuple[Fault, ...] = ()
    is_stale: bool = False
    is_asleep: bool = False
    meanwhile: Meanwhile | None = None
    is_late: bool = False
    moves: int | None = None
    order: int | None = None
    checks: bool = True
    lies: int = 0
    misreads: int = 0
    is_unsafe: bool = False
    full: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Collect:
    """`gc` beside a broker, None for the leader. `is_by_hand`: a process of its own, which knows of no upload that goes on."""

    broker: int | None = None
    faults: tuple[Fault, ...] = ()
    is_stale: bool = False
    meanwhile: Meanwhile | None = None
    is_by_hand: bool = False
    is_late: bool = False
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Reload:
    """A sidecar takes over changed settings. `broker`: None for the leader. For the others see `Schedule`."""

    broker: int | None = None
    uploads_ahead: int = 1
    max_queue: int = UNLIMITED
    task_s: float = math.inf
    compacts: bool = False


@dataclass(frozen=True, slots=True)
class Compact:
    """A sidecar compacts what waits for its upload. `broker`: None for the leader. `sweeps`: its copies are gone then."""

    broker: int | None = None
    sweeps: bool = False


@dataclass(frozen=True, slots=True)
class CompactArchive:
    """What is archived is compacted beside a broker, None for the leader; or by hand. `seed`: of which segments become one.

    `strategy`: that is given by hand, None for that of the topic's configs.
    """

    seed: int
    broker: int | None = None
    faults: tuple[Fault, ...] = ()
    is_stale: bool = False
    meanwhile: Meanwhile | None = None
    is_by_hand: bool = False
    is_late: bool = False
    partition: int = 0
    strategy: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeStrategy:
    """From now on a sidecar knows another compaction strategy of the topic, None for no declared one. `broker`: None for all."""

    strategy: str | None
    broker: int | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """An operator undoes the newest compaction."""

    faults: tuple[Fault, ...] = ()
    is_stale: bool = False
    meanwhile: Meanwhile | None = None
    is_late: bool = False
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Hide:
    """The store lacks a commit that can be missed, while sidecars have rounds. Nothing may be committed meanwhile.

    `forgets`: all sidecars begin without memory, and a checkpoint shows the commit; else the leader's sidecar knows it.
    `damages`: instead, what the newest segment has besides its log cannot be read meanwhile.
    """

    steps: tuple[Step, ...]
    forgets: bool = False
    damages: bool = False


PLAIN: Final = LogShape()

BrokerStep: TypeAlias = (
    Append
    | Roll
    | Retention
    | DeleteRecords
    | Shrink
    | Fetch
    | NewLeader
    | UncleanLeader
    | Move
    | LoseFile
    | Touch
    | Clean
    | Recreate
)
"""What happens to one partition's log."""
Step: TypeAlias = (
    BrokerStep
    | Away
    | Disk
    | Wait
    | Jump
    | Restart
    | Reload
    | Land
    | GoOn
    | Round
    | Collect
    | Compact
    | CompactArchive
    | ChangeStrategy
    | Undo
    | Hide
)
Process: TypeAlias = Round | Collect | CompactArchive | Undo


@dataclass(frozen=True, slots=True)
class Schedule:
    """`shape`: of the log. `has_topic_id`: whether the broker's directory has one. `seed`: of random ids.

    `gives_times`: the store has modification times. `partitions`: so many, numbered from 0. `workers`: copy tasks of a sidecar
    that are under way at once. `compacts`: the topic is compacted before its upload. `max_queue`, `task_s`, `retry_wait_s`: see
    `RunLimits`. `pins`: so many files a sidecar can pin. `records_lost`: a gap is recorded, and does not stop its partition.
    `has_connection`: to the brokers; without it, checkpoint files say what is stable, and the first broker is assumed to lead.
    `strategy`: see `ChangeStrategy`.
    """

    seed: int
    steps: tuple[Step, ...]
    shape: LogShape = PLAIN
    has_topic_id: bool = True
    uploads_ahead: int = 1
    grace_period_ms: int = HOUR_MS
    gives_times: bool = True
    partitions: int = 1
    workers: int = 1
    compacts: bool = False
    max_queue: int = UNLIMITED
    task_s: float = math.inf
    retry_wait_s: float = 0.0
    pins: int = ENOUGH_PINS
    records_lost: bool = True
    has_connection: bool = True
    strategy: str | None = None
