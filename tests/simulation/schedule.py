"""Schedules: what brokers, sidecars, `gc` and time do, step by step, all from one seed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final, TypeAlias

from tests.histories.faults import CRASH, ERRORS, Fault
from tests.simulation.cluster import LogShape

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
UNLIMITED: Final = 1_000_000


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
    """From now on a log dir of a broker is gone or there, and its disks have this much room."""

    broker: int
    number: int = 0
    is_away: bool = False
    free_share: float = 1.0


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
    """Of a sidecar. `forgets`: its volume is gone. `stops`: it is asked to end, and not just killed."""

    broker: int
    forgets: bool = False
    stops: bool = False


@dataclass(frozen=True, slots=True)
class Land:
    """Puts that failed, and are still on their way, take hold now."""


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """These steps happen when a process makes its next store call after so many."""

    call: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """A sidecar looks at its disk and archives. `broker`: None for the leader.

    `is_asleep`: its broker says what it said at the last round, perhaps that it leads. `is_late`: see `SimLink`. `moves`: it
    gets no further than that, and goes on in a later round; None: to the end. `order`, `checks`: see `Sidecar.run`.
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
class Compact:
    """A sidecar compacts what waits for its upload. `broker`: None for the leader. `sweeps`: its copies are gone then."""

    broker: int | None = None
    sweeps: bool = False


@dataclass(frozen=True, slots=True)
class Hide:
    """The store lacks a commit that can be missed, while sidecars have rounds. Nothing may be committed meanwhile.

    `forgets`: all sidecars begin without memory, and a checkpoint shows the commit; else the leader's sidecar knows it.
    `damages`: instead, what the newest segment has besides its log cannot be read meanwhile.
    """

    steps: tuple[Round, ...]
    forgets: bool = False
    damages: bool = False


PLAIN: Final = LogShape()

BrokerStep: TypeAlias = (
    Append | Roll | Retention | DeleteRecords | Shrink | Fetch | NewLeader | UncleanLeader | Move | Recreate
)
"""What happens to one partition's log."""
Step: TypeAlias = BrokerStep | Away | Disk | Wait | Jump | Restart | Land | Round | Collect | Compact | Hide
Process: TypeAlias = Round | Collect


@dataclass(frozen=True, slots=True)
class Schedule:
    """`shape`: of the log. `has_topic_id`: whether the broker's directory has one. `seed`: of random ids.

    `partitions`: so many, numbered from 0. `workers`: copy tasks of a sidecar that are under way at once. `compacts`: the topic
    is compacted before its upload. `max_queue`, `task_s`: see `Policy`.
    """

    seed: int
    steps: tuple[Step, ...]
    shape: LogShape = PLAIN
    has_topic_id: bool = True
    uploads_ahead: int = 1
    grace_period_ms: int = HOUR_MS
    partitions: int = 1
    workers: int = 1
    compacts: bool = False
    max_queue: int = UNLIMITED
    task_s: float = math.inf

    @property
    def is_cut_off(self) -> bool:
        """Whether a round may leave segments to the next one."""
        return self.max_queue < UNLIMITED or self.task_s < math.inf


def random_schedule(seed: int) -> Schedule:
    """The schedule of this seed."""
    random = Random(f"simulation {seed}")
    shape = LogShape(
        roll_batches=(random.choice((1, 2, 3)), random.choice((1, 2, 3))),
        transactions=random.random() < 0.5,
        idempotent=random.random() < 0.7,
    )
    steps: list[Step] = [_append(random) for _ in range(random.randint(1, 3))]
    for _ in range(random.randint(6, 20)):
        steps += _next(random)
    found = Schedule(
        seed,
        tuple(steps),
        shape,
        has_topic_id=random.random() < 0.8,
        uploads_ahead=random.choice((1, 1, 2, 3)),
        grace_period_ms=random.choice((0, HOUR_MS)),
    )
    # Each in a stream of its own: what one of them draws changes nothing of the others.
    for name, add in _FAULTS.items():
        found = add(Random(f"{name} {seed}"), found)
    return found


def _with_groups(random: Random, schedule: Schedule) -> Schedule:
    """The topic is compacted before its upload, now and then behind a check."""
    if random.random() < 0.7:
        return schedule
    steps: list[Step] = []
    for step in schedule.steps:
        steps.append(step)
        if isinstance(step, Round) and random.random() < 0.7:
            meanwhile = None if random.random() < 0.7 else Meanwhile(random.randrange(8), (Compact(_broker(random)),))
            steps += [Compact(_broker(random), random.random() < 0.05), Round(_broker(random), meanwhile=meanwhile)]
    return replace(schedule, steps=tuple(steps), compacts=True)


def _with_limits(random: Random, schedule: Schedule) -> Schedule:
    """Plans and tasks are cut off in the middle."""
    max_queue = random.choice((1, 2, 3, 5, *[UNLIMITED] * 4))
    return replace(schedule, max_queue=max_queue, task_s=random.choice((0.0, 60.0, math.inf, math.inf)))


_FAULTS: Final[dict[str, Callable[[Random, Schedule], Schedule]]] = {"groups": _with_groups, "limits": _with_limits}
"""What is added to a schedule, by the name of its stream."""


def _next(random: Random) -> list[Step]:
    draw = random.random()
    if draw < 0.3:
        return [_append(random), _round(random)]
    if draw < 0.45:
        return [_round(random)]
    if draw < 0.53:
        return [_collect(random)]
    if draw < 0.55:
        return [_append(random), _hide(random)]
    if draw < 0.58:
        return _takeover(random)
    return [_event(random)]


def _takeover(random: Random) -> list[Step]:
    """Another broker leads, its sidecar archives the first segment, and so does one that slept through it."""
    nothing, one = (Fault("StoreUnavailable", "upload", "", first, 50) for first in (0, 2))
    steps: list[Step] = [Append(random.randrange(2**32), 7), Round(faults=(nothing,)), NewLeader(random.random() < 0.7)]
    sleeper = Round(random.randrange(2), _faults(random), is_asleep=True)
    return [*steps, _append(random), Round(faults=(one,)), sleeper]


def _event(random: Random) -> Step:
    """What no sidecar does."""
    (make,) = random.choices(_EVENTS, _WEIGHTS)
    return make(random)


def _append(random: Random) -> Step:
    return Append(random.randrange(2**32), random.randint(1, 5), random.random() < 0.15)


def _wait(random: Random) -> Step:
    times_ms = (SECOND_MS, MINUTE_MS, 11 * MINUTE_MS, 3 * HOUR_MS, 13 * HOUR_MS, 30 * HOUR_MS)
    return Wait(random.choice(times_ms))


def _retention(random: Random) -> Step:
    return Retention(random.randrange(2), random.choice((1, 1, 2, 9)))


def _jump(random: Random) -> Step:
    return Jump(random.randrange(2), random.choice((-48, -1, 1, 48)) * HOUR_MS)


_EVENTS: Final[tuple[Callable[[Random], Step], ...]] = (
    _append,
    lambda random: Roll(random.randrange(2)),
    _retention,
    lambda random: DeleteRecords(random.choice((0.1, 0.3, 0.6, 1.0))),
    lambda _random: Shrink(),
    lambda _random: Fetch(),
    lambda random: NewLeader(random.random() < 0.7),
    _wait,
    _jump,
    lambda random: Restart(random.randrange(2), random.random() < 0.4, random.random() < 0.4),
    lambda _random: Land(),
)
_WEIGHTS: Final = (20, 12, 8, 5, 3, 6, 14, 14, 2, 8, 3)


def _broker(random: Random) -> int | None:
    return random.choice((None, None, None, 0, 1))


def _round(random: Random) -> Round:
    broker, is_asleep = _broker(random), random.random() < 0.15
    faults, is_late = _faults(random), random.random() < 0.3
    found = Round(broker, faults, random.random() < 0.1, is_asleep, _meanwhile(random), is_late)
    if random.random() < 0.5:
        found = replace(found, order=random.randrange(2**32))
    if random.random() < 0.25:
        found = replace(found, moves=random.choice((1, 3, 8, 15, 25)), checks=random.random() < 0.6)
    return found


def _collect(random: Random) -> Collect:
    is_by_hand = random.random() < 0.3
    return Collect(_broker(random), _faults(random), random.random() < 0.25, _meanwhile(random), is_by_hand)


def _hide(random: Random) -> Hide:
    forgets = random.random() < 0.5
    # Without any memory only the listing of checkpoints shows it.
    rounds = (Round(_broker(random) if forgets else None, _faults(random)) for _ in range(random.randint(1, 2)))
    return Hide(tuple(rounds), forgets)


def _meanwhile(random: Random) -> Meanwhile | None:
    if random.random() > 0.3:
        return None
    call = random.choice((random.randrange(4), random.randrange(8), random.randrange(20)))
    if random.random() < 0.12:  # gc takes an upload that sleeps for an abandoned one.
        return Meanwhile(call, (Wait(30 * HOUR_MS), Collect(is_by_hand=True)))
    steps = list[Step]()
    for _ in range(random.choice((1, 1, 2, 3))):
        draw = random.random()
        if draw < 0.35:
            faults = _faults(random) if random.random() < 0.3 else ()
            steps.append(Round(_broker(random), faults, is_asleep=random.random() < 0.3))
        elif draw < 0.5:
            if random.random() < 0.4:
                steps.append(Wait(30 * HOUR_MS))
            steps.append(Collect(_broker(random), is_stale=random.random() < 0.2, is_by_hand=random.random() < 0.5))
        else:
            steps.append(_event(random))
    return Meanwhile(call, tuple(steps))


def _faults(random: Random) -> tuple[Fault, ...]:
    return tuple(_fault(random) for _ in range(random.choice((0, 1, 1, 2))))


def _fault(random: Random) -> Fault:
    error = random.choice((*ERRORS, CRASH, CRASH, CRASH))
    after, calls = random.random() < 0.5, random.choice((1, 1, 2, 8))
    draw = random.random()
    if draw < 0.2:
        return Fault(error, "put_if_absent", "/commits/", random.randrange(3), calls, after)
    if draw < 0.4:  # Around a commit: whether it stands is what matters most.
        return Fault(error, random.choice(("", "read")), "", random.randrange(3), calls, after, after_commit_put=True)
    if draw < 0.65:
        operations = ("upload", "read", "head", "list", "delete", "put_if_absent", "unfinished_uploads")
        return Fault(error, random.choice(operations), "", random.randrange(4), calls, after)
    first = random.choice((random.randrange(4), random.randrange(8), random.randrange(20)))
    return Fault(error, "", "", first, random.choice((1, 1, 4, 50)), after)
