"""Draws schedules from seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from tests.histories.faults import Fault
from tests.simulation.cluster import LogShape
from tests.simulation.more_faults import MORE_FAULTS
from tests.simulation.schedule import (
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    Append,
    Collect,
    DeleteRecords,
    Fetch,
    Hide,
    Jump,
    Land,
    Meanwhile,
    NewLeader,
    Restart,
    Retention,
    Roll,
    Round,
    Schedule,
    Shrink,
    Step,
    Wait,
)
from tests.simulation.store_faults import faults_of


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
    for name, add in MORE_FAULTS.items():
        found = add(Random(f"{name} {seed}"), found)
    return found


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
    sleeper = Round(random.randrange(2), faults_of(random), is_asleep=True)
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
    faults, is_late = faults_of(random), random.random() < 0.3
    found = Round(broker, faults, random.random() < 0.1, is_asleep, _meanwhile(random), is_late)
    if random.random() < 0.5:
        found = replace(found, order=random.randrange(2**32))
    if random.random() < 0.25:
        found = replace(found, moves=random.choice((1, 3, 8, 15, 25)), checks=random.random() < 0.6)
    return found


def _collect(random: Random) -> Collect:
    is_by_hand = random.random() < 0.3
    return Collect(_broker(random), faults_of(random), random.random() < 0.25, _meanwhile(random), is_by_hand)


def _hide(random: Random) -> Hide:
    forgets = random.random() < 0.5
    # Without any memory only the listing of checkpoints shows it.
    rounds = (Round(_broker(random) if forgets else None, faults_of(random)) for _ in range(random.randint(1, 2)))
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
            faults = faults_of(random) if random.random() < 0.3 else ()
            steps.append(Round(_broker(random), faults, is_asleep=random.random() < 0.3))
        elif draw < 0.5:
            if random.random() < 0.4:
                steps.append(Wait(30 * HOUR_MS))
            steps.append(Collect(_broker(random), is_stale=random.random() < 0.2, is_by_hand=random.random() < 0.5))
        else:
            steps.append(_event(random))
    return Meanwhile(call, tuple(steps))
