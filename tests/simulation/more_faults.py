"""What is added to a drawn schedule, each with a probability and in a stream of random numbers of its own.

What one of them draws changes nothing of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Any, Final, TypeAlias

from tests.histories.faults import Fault
from tests.simulation.schedule import (
    HOUR_MS,
    MINUTE_MS,
    UNLIMITED,
    Append,
    Away,
    BrokerStep,
    ChangeStrategy,
    Clean,
    Collect,
    Compact,
    CompactArchive,
    DeleteRecords,
    Disk,
    GoOn,
    Hide,
    Jump,
    Land,
    LoseFile,
    Meanwhile,
    Move,
    NewLeader,
    Recreate,
    Reload,
    Restart,
    Retention,
    Round,
    Schedule,
    Shrink,
    Step,
    Touch,
    UncleanLeader,
    Undo,
    Wait,
)
from tests.simulation.store_faults import faults_of

Add: TypeAlias = Callable[[Random, Schedule], Schedule]


def mapped(steps: Iterable[Step], change: Callable[[Any], Any]) -> tuple[Step, ...]:
    """All steps changed, those inside of others too."""
    found: list[Step] = []
    for step in steps:
        if isinstance(step, Round | Collect | CompactArchive | Undo) and step.meanwhile is not None:
            step = replace(step, meanwhile=replace(step.meanwhile, steps=mapped(step.meanwhile.steps, change)))
        if isinstance(step, Hide):
            step = replace(step, steps=mapped(step.steps, change))
        found.append(change(step))
    return tuple(found)


def inserted(random: Random, schedule: Schedule, *added: tuple[Step, ...]) -> Schedule:
    """Each of these at a random place."""
    steps = list(schedule.steps)
    for some in added:
        at = random.randint(min(2, len(steps)), len(steps))
        steps[at:at] = some
    return replace(schedule, steps=tuple(steps))


def _broker(random: Random) -> int | None:
    return random.choice((None, None, None, 0, 1))


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


def _with_interruptions(random: Random, schedule: Schedule) -> Schedule:
    """Another broker leads while a segment is read, or between an upload and its commit; then there is more to archive."""
    if random.random() < 0.7:
        return schedule

    def interruption() -> tuple[Step, ...]:
        operation = random.choice(("read segment", "confirm", "upload", "upload"))
        change: tuple[Step, ...] = (NewLeader(random.random() < 0.7),)
        if random.random() < 0.5:
            change += (Append(random.randrange(2**32), random.randint(1, 4)), Round())
        meanwhile = Meanwhile(random.randrange(4), change, operation)
        order = random.randrange(2**32)
        return Append(random.randrange(2**32), random.randint(3, 9)), Round(meanwhile=meanwhile, order=order)

    schedule = replace(schedule, uploads_ahead=random.choice((1, 2, 3, 3)))
    return inserted(random, schedule, *(interruption() for _ in range(random.randint(1, 3))))


def _with_damage(random: Random, schedule: Schedule) -> Schedule:
    """The newest archived snapshot cannot be read for a time."""
    if random.random() < 0.85:
        return schedule
    rounds = (Round(_broker(random)) for _ in range(random.randint(1, 2)))
    return inserted(
        random, schedule, (Append(random.randrange(2**32), 4), Hide(tuple(rounds), random.random() < 0.5, True))
    )


def _with_partitions(random: Random, schedule: Schedule) -> Schedule:
    """What happens to logs happens to one of several partitions."""
    if random.random() < 0.75:
        return schedule
    count = random.choice((2, 2, 3))

    def of_another(step: Step) -> Step:
        return replace(step, partition=random.randrange(count)) if isinstance(step, BrokerStep | Collect) else step

    return replace(schedule, partitions=count, workers=random.choice((1, 2)), steps=mapped(schedule.steps, of_another))


def _with_third_broker(random: Random, schedule: Schedule) -> Schedule:
    """Three brokers, and a sidecar beside each."""
    if random.random() < 0.8:
        return schedule

    def beside_another(step: Any) -> Any:
        return step if getattr(step, "broker", None) is None else replace(step, broker=random.randrange(3))

    shape = replace(schedule.shape, roll_batches=(*schedule.shape.roll_batches, random.choice((1, 2, 3))))
    return replace(schedule, shape=shape, steps=mapped(schedule.steps, beside_another))


def _with_unclean_leaders(random: Random, schedule: Schedule) -> Schedule:
    """What the next leader lacks is lost, be it archived or not."""
    if random.random() < 0.9:
        return schedule
    lost = (Append(random.randrange(2**32), random.randint(1, 6), lags=True), Shrink())
    archived = (Round(),) if random.random() < 0.7 else ()
    after = (
        Append(random.randrange(2**32), random.randint(0, 6)),
        Round(),
        Append(random.randrange(2**32), random.randint(0, 8)),
        Round(),
    )
    return inserted(random, schedule, (*lost, *archived, UncleanLeader(), *after))


def _with_new_topics(random: Random, schedule: Schedule) -> Schedule:
    """The topic is deleted, and created again, perhaps while something is archived of it."""
    if random.random() < 0.85:
        return schedule
    recreate = Recreate(random.randrange(schedule.partitions))
    if random.random() < 0.5:
        meanwhile = Meanwhile(random.randrange(20), (recreate, Append(random.randrange(2**32), 3)))
        return inserted(random, schedule, (Append(random.randrange(2**32), 4), Round(meanwhile=meanwhile)))
    return inserted(random, schedule, (recreate, Append(random.randrange(2**32), random.randint(1, 6))))


def _with_absent_brokers(random: Random, schedule: Schedule) -> Schedule:
    """A broker does not answer for a time, perhaps from the middle of an archiving round on."""
    if random.random() < 0.8:
        return schedule
    broker = random.randrange(len(schedule.shape.roll_batches))
    away: tuple[Step, ...] = (Away(broker),)
    if random.random() < 0.5:
        away = (Append(random.randrange(2**32), 4), Round(broker, meanwhile=Meanwhile(random.randrange(20), away)))
    return inserted(random, schedule, away, (Away(broker, is_away=False),))


def _with_disks(random: Random, schedule: Schedule) -> Schedule:
    """A broker's disk is full, or gone for a time."""
    if random.random() < 0.85:
        return schedule
    broker = random.randrange(len(schedule.shape.roll_batches))
    if random.random() < 0.5:
        full = Disk(broker, free_share=0.01)
        return inserted(
            random, schedule, (full, Retention(broker), Wait(2 * MINUTE_MS), Round(broker)), (Disk(broker),)
        )
    gone: tuple[Step, ...] = (Disk(broker, is_away=True, fails=random.random() < 0.3), Round(broker))
    if random.random() < 0.5:
        gone = (Append(random.randrange(2**32), 4), Round(broker, meanwhile=Meanwhile(random.randrange(20), gone[:1])))
    return inserted(random, schedule, gone, (Disk(broker),))


def _with_moves(random: Random, schedule: Schedule) -> Schedule:
    """A replica goes to another log dir of its broker, perhaps while something is archived of it."""
    if random.random() < 0.85:
        return schedule
    move = Move(random.randrange(2), random.choice((1, 1, 0)), random.randrange(schedule.partitions))
    if random.random() < 0.5:
        meanwhile = Meanwhile(random.randrange(20), (move,))
        return inserted(random, schedule, (Append(random.randrange(2**32), 4), Round(meanwhile=meanwhile)))
    return inserted(random, schedule, (move,))


def _with_archive_compaction(random: Random, schedule: Schedule) -> Schedule:
    """What is archived is compacted now and then, by hand too; and compactions are undone."""
    if random.random() < 0.75:
        return schedule

    def compaction() -> tuple[Step, ...]:
        partition = random.randrange(schedule.partitions)
        meanwhile = None
        if random.random() < 0.5:
            others = (
                (Append(random.randrange(2**32), 4), Round()),
                (NewLeader(), Append(random.randrange(2**32), 3), Round()),
                (CompactArchive(random.randrange(2**32), is_by_hand=True),),
                (DeleteRecords(0.6), Round()),
                (Undo(),),
                (Wait(30 * HOUR_MS), Collect(is_by_hand=True)),
                (Collect(),),
            )
            meanwhile = Meanwhile(random.randrange(20), random.choice(others))
        faults = faults_of(random)
        if random.random() < 0.3:
            undo = Undo(faults, random.random() < 0.2, meanwhile, random.random() < 0.3, partition)
            return (CompactArchive(random.randrange(2**32), partition=partition), undo)
        by_hand, is_late = random.random() < 0.3, random.random() < 0.3
        seed, is_stale = random.randrange(2**32), random.random() < 0.2
        return (
            CompactArchive(seed, _broker(random), faults, is_stale, meanwhile, by_hand, is_late, partition),
            *((Collect(partition=partition),) if random.random() < 0.4 else ()),
        )

    return inserted(random, schedule, *(compaction() for _ in range(random.randint(1, 4))))


def _with_reloads(random: Random, schedule: Schedule) -> Schedule:
    """Settings change, perhaps while something is archived."""
    if random.random() < 0.85:
        return schedule

    def reload() -> tuple[Step, ...]:
        limits = random.choice((1, 2, 3)), random.choice((1, 3, UNLIMITED)), random.choice((0.0, math.inf))
        change = Reload(_broker(random), *limits, random.random() < 0.5)
        if random.random() < 0.5:
            meanwhile = Meanwhile(random.randrange(20), (change,))
            return (Append(random.randrange(2**32), 5), Round(meanwhile=meanwhile, moves=random.choice((None, 5, 15))))
        return (change, Round(), Compact())

    return inserted(random, schedule, *(reload() for _ in range(random.randint(1, 3))))


def _with_full_volumes(random: Random, schedule: Schedule) -> Schedule:
    """A sidecar's volume has no room for its journal, for a time."""
    if random.random() < 0.85:
        return schedule

    def full(step: Step) -> Step:
        if not isinstance(step, Round) or random.random() > 0.4:
            return step
        first = random.choice((random.randrange(4), random.randrange(16)))
        return replace(step, full=(first, first + random.choice((1, 1, 2, 50))))

    return replace(schedule, steps=mapped(schedule.steps, full))


def _with_overlaps(random: Random, schedule: Schedule) -> Schedule:
    """Steps of a sidecar overlap: in the middle of one, others run, and the loop goes on."""
    if random.random() < 0.6:
        return schedule

    def overlapping(step: Step) -> Step:
        if not isinstance(step, Round) or step.meanwhile is not None or random.random() < 0.5:
            return step
        steps: tuple[Step, ...] = (GoOn(random.choice((1, 3, 8, 20, 60))),)
        if random.random() < 0.2:
            steps = (*steps, NewLeader(), GoOn(random.choice((3, 8, 20))))
        call = random.choice((random.randrange(4), random.randrange(12), random.randrange(30)))
        operation = random.choice(("", "", "upload", "upload", "read segment", "confirm"))
        call = call if not operation else random.randrange(3)
        return replace(step, meanwhile=Meanwhile(call, steps, operation), order=random.randrange(2**32))

    return replace(schedule, steps=tuple(map(overlapping, schedule.steps)))


def _with_stops(random: Random, schedule: Schedule) -> Schedule:
    """A sidecar is asked to end in the middle of what it does."""
    if random.random() < 0.85:
        return schedule
    meanwhile = Meanwhile(random.randrange(40), (Restart(None, stops=True),))
    order = random.choice((None, random.randrange(2**32)))
    return inserted(
        random,
        schedule,
        (Append(random.randrange(2**32), random.randint(3, 9)), Round(None, meanwhile=meanwhile, order=order)),
    )


def _with_lost_files(random: Random, schedule: Schedule) -> Schedule:
    """A segment's file is gone from a broker's disk, perhaps while something is archived of it."""
    if random.random() < 0.85:
        return schedule
    broker, number = random.randrange(2), random.randrange(9)
    lost, more = LoseFile(broker, number, random.randrange(schedule.partitions)), Append(random.randrange(2**32), 6)
    if random.random() < 0.5:
        return inserted(random, schedule, (more, Round(meanwhile=Meanwhile(random.randrange(20), (lost,)))))
    return inserted(random, schedule, (more, lost, Round()))


def _with_touched_files(random: Random, schedule: Schedule) -> Schedule:
    """The time of a file changes while its segment waits."""
    if random.random() < 0.94:
        return schedule
    broker, nothing = random.randrange(2), Fault("StoreUnavailable", "upload", "", 0, 50)
    touch = Touch(broker, random.randrange(9), random.randrange(schedule.partitions))
    more, waits = Append(random.randrange(2**32), random.randint(3, 9)), Round(broker, faults=(nothing,))
    return inserted(random, schedule, (more, waits, touch, waits, waits))


def _with_backoffs(random: Random, schedule: Schedule) -> Schedule:
    """A partition that failed is left alone for a time."""
    return schedule if random.random() < 0.8 else replace(schedule, retry_wait_s=random.choice((5.0, 60.0, 600.0)))


def _with_few_pins(random: Random, schedule: Schedule) -> Schedule:
    """Not all segments that wait can be pinned."""
    return schedule if random.random() < 0.9 else replace(schedule, pins=random.choice((0, 1, 2)))


def _with_no_times(random: Random, schedule: Schedule) -> Schedule:
    """The store has no modification times: gc deletes nothing."""
    return replace(schedule, gives_times=random.random() > 0.08)


def _with_lies(random: Random, schedule: Schedule) -> Schedule:
    """The store confirms a commit now and then that it does not keep."""
    if random.random() < 0.9:
        return schedule

    def lied_to(step: Step) -> Step:
        return replace(step, lies=random.randint(1, 2)) if isinstance(step, Round) and random.random() < 0.3 else step

    return replace(schedule, steps=mapped(schedule.steps, lied_to))


def _with_misreads(random: Random, schedule: Schedule) -> Schedule:
    """A disk gives other bytes of a segment when it is read again to be sent."""
    if random.random() < 0.9:
        return schedule

    def misread(step: Step) -> Step:
        if not isinstance(step, Round) or random.random() > 0.3:
            return step
        return replace(step, misreads=random.randint(1, 2))

    return replace(schedule, steps=mapped(schedule.steps, misread))


def _with_unsafe_stores(random: Random, schedule: Schedule) -> Schedule:
    """The probe's races find two winners, where they have not ended well since the process began."""
    if random.random() < 0.8:
        return schedule

    def refused(step: Step) -> Step:
        return replace(step, is_unsafe=True) if isinstance(step, Round) and random.random() < 0.4 else step

    return replace(schedule, steps=mapped(schedule.steps, refused))


def _with_refused_gaps(random: Random, schedule: Schedule) -> Schedule:
    """A gap stops its partition. The broker speaks from the past of what retention took while nothing was pinned."""
    if random.random() < 0.9:
        return schedule
    broker = random.randrange(2)
    steps: tuple[Step, ...] = (Append(random.randrange(2**32), random.randint(3, 8)), Round())
    if random.random() < 0.5:
        steps += (LoseFile(broker, random.randrange(9), random.randrange(schedule.partitions)), Round())
    else:
        nothing = Fault("StoreUnavailable", "upload", "", 0, 50)
        steps += (Append(random.randrange(2**32), 6), Round(faults=(nothing,)), Restart(None))
        unread = Fault("StoreUnavailable", "read", "", 0, 8, after_commit_put=True)
        faults = (unread,) if random.random() < 0.5 else ()
        steps += (Retention(0, 9), Retention(1, 9), Round(is_asleep=True), Round(is_asleep=True), Round(faults=faults))
    return replace(inserted(random, schedule, steps), records_lost=False)


def _with_cleaners(random: Random, schedule: Schedule) -> Schedule:
    """Brokers compact the log: segments are replaced, perhaps while they are archived. All clocks agree."""
    if random.random() < 0.88 or schedule.compacts:
        return schedule
    has_others = False

    def look(step: Step) -> Step:
        nonlocal has_others
        has_others |= isinstance(step, CompactArchive | LoseFile | UncleanLeader)
        return step

    mapped(schedule.steps, look)
    if has_others:
        return schedule

    def cleaning() -> tuple[Step, ...]:
        is_cut_off = random.random() < 0.4
        partition = random.randrange(schedule.partitions)
        clean = Clean(random.randrange(2), random.randrange(9), random.choice((1, 1, 2, 3)), is_cut_off, partition)
        more = Append(random.randrange(2**32), random.randint(3, 9), partition=partition)
        if random.random() < 0.6:
            operation = random.choice(("", "read segment", "confirm", "upload"))
            call = random.randrange(20) if not operation else random.randrange(4)
            return more, Round(meanwhile=Meanwhile(call, (clean,), operation))
        return more, clean, Round(), Round()

    schedule = inserted(random, schedule, *(cleaning() for _ in range(random.randint(1, 4))))
    steps = mapped(schedule.steps, lambda step: Wait(MINUTE_MS) if isinstance(step, Jump) else step)
    return replace(schedule, steps=steps, shape=replace(schedule.shape, is_cleaned=True))


def _with_taken_markers(random: Random, schedule: Schedule) -> Schedule:
    """The store is away for so long that cleaners take transactions, and then their markers."""
    if not schedule.shape.is_cleaned or random.random() < 0.4:
        return schedule
    partition = random.randrange(schedule.partitions)
    more = Append(random.randrange(2**32), random.randint(5, 9), partition=partition)
    away = Fault("StoreUnavailable", "upload", "", random.choice((0, 2, 2)), 50)
    cleans = [Clean(broker, 0, 9, partition=partition) for broker in (0, 1)] * random.randint(2, 3)
    steps = (more, Round(faults=(away,)), replace(more, seed=more.seed ^ 1), *cleans, Round(), Round())
    return inserted(random, schedule, steps)


def _with_files_alone(random: Random, schedule: Schedule) -> Schedule:
    """No broker is asked, and none but the first one ever leads."""
    if random.random() < 0.94:
        return schedule
    others = NewLeader | UncleanLeader | Recreate | Away | Move

    def at_rest(step: Step) -> Step:
        return Wait(MINUTE_MS) if isinstance(step, others) else step

    return replace(schedule, steps=mapped(schedule.steps, at_rest), has_connection=False)


def _with_changes_before_listings(random: Random, schedule: Schedule) -> Schedule:
    """The log changes after a broker was asked, and before its directory is listed: retention takes what was pinned, or not."""
    if random.random() < 0.88:
        return schedule
    nothing = Fault("StoreUnavailable", "upload", "", 0, 50)

    def change() -> tuple[Step, ...]:
        partition, broker = random.randrange(schedule.partitions), random.randrange(2)
        more = Append(random.randrange(2**32), random.randint(2, 7), partition=partition)
        taken: tuple[Step, ...] = (Retention(broker, random.choice((1, 2, 9)), partition),)
        if random.random() < 0.3:
            taken = (
                DeleteRecords(random.choice((0.3, 0.6, 1.0)), partition),
                *(taken if random.random() < 0.5 else ()),
            )
        if random.random() < 0.4:
            taken = (Append(random.randrange(2**32), random.randint(1, 5), partition=partition), *taken)
        before = Round(broker, faults=(nothing,) if random.random() < 0.6 else ())
        between = Round(broker, (nothing,) if random.random() < 0.4 else (), meanwhile=Meanwhile(0, taken, "scan"))
        return more, before, between, *((Round(broker),) if random.random() < 0.7 else ())

    return inserted(random, schedule, *(change() for _ in range(random.randint(1, 3))))


def _with_losses_before_the_first_commit(random: Random, schedule: Schedule) -> Schedule:
    """Retention takes what only pins have, the store cannot be read when that is seen, and the process ends."""
    if random.random() < 0.94:
        return schedule
    no_upload, nothing = (Fault("StoreUnavailable", operation, "", 0, 50) for operation in ("upload", ""))
    appends = [Append(random.randrange(2**32), random.randint(2, 7)) for _ in "abc"]
    taken = (Retention(0, random.choice((1, 2, 9))), Retention(1, random.choice((1, 2, 9))))
    between: tuple[Step, ...] = (Restart(None, stops=random.random() < 0.4),) if random.random() < 0.8 else ()
    begin: tuple[Step, ...] = (appends[0], Round(faults=(no_upload,)), appends[1], *taken)
    if random.random() < 0.4:  # Pins have it until the process ends. What is deleted on purpose comes on top.
        begin += (Round(faults=(no_upload,)), DeleteRecords(random.choice((0.3, 0.6))), Round(faults=(no_upload,)))
    begin += (Round(faults=(nothing,)), *between, appends[2])
    return replace(schedule, steps=(*begin, Round(), *schedule.steps))


def _with_strategies(random: Random, schedule: Schedule) -> Schedule:
    """A topic that is compacted has another strategy than the default, which may change, also for one sidecar before the others."""
    compactions = [step for step in schedule.steps if isinstance(step, CompactArchive)]
    if random.random() < 0.5 or not (compactions or schedule.compacts):
        return schedule
    schedule = replace(schedule, strategy=_strategy(random))

    def change() -> tuple[Step, ...]:
        changed = ChangeStrategy(_strategy(random), _broker(random))
        if schedule.compacts and random.random() < 0.5:
            return Append(random.randrange(2**32), random.randint(2, 6)), Round(), Compact(), changed, Round()
        draw, seed = random.random(), random.randrange(2**32)
        if draw < 0.3:
            return changed, CompactArchive(seed)
        # In the middle of a compaction, or another one by hand.
        steps: tuple[Step, ...] = (changed,)
        if draw < 0.6:
            steps = (CompactArchive(seed, is_by_hand=True, strategy=_strategy(random)),)
        return (CompactArchive(seed, meanwhile=Meanwhile(random.randrange(20), steps)),)

    return inserted(random, schedule, *(change() for _ in range(random.choice((0, 1, 1, 2)))))


def _with_deletions(random: Random, schedule: Schedule) -> Schedule:
    """A check sees DeleteRecords, and nothing is committed until retention, a restart or another leader comes in between."""
    if random.random() < 0.93:
        return schedule
    partition = random.randrange(schedule.partitions)
    more = Append(random.randrange(2**32), random.randint(4, 9), partition=partition)
    unread = (Fault("StoreUnavailable", "upload", "", 0, 50),)
    deletion = DeleteRecords(random.choice((0.3, 0.6, 0.8)), partition)
    between = random.choice(
        (
            (Retention(0, 9, partition), Retention(1, 9, partition)),
            (Retention(0, 1, partition), Retention(1, 1, partition)),
            (Restart(None),),
            (NewLeader(partition=partition), Append(random.randrange(2**32), 3, partition=partition)),
        )
    )
    archived = (Round(),) if random.random() < 0.5 else ()
    return inserted(random, schedule, (more, *archived, Round(faults=unread), deletion, Round(faults=unread), *between))


def _strategy(random: Random) -> str | None:
    return random.choice((None, "offset", "timestamp", "timestamp", "header", "header"))


def _with_late_deletes(random: Random, schedule: Schedule) -> Schedule:
    """The store falls silent after a `.log`: what is to be discarded is deleted late, perhaps when it is archived."""
    if random.random() < 0.9:
        return schedule
    error = random.choice(("StoreUnavailable", "OutcomeUnknown"))
    silent = Fault(error, "upload", "", 1, 50), Fault(error, "delete", "/segments/", 0, 50)
    steps: tuple[Step, ...] = (
        Append(random.randrange(2**32), random.randint(3, 9)),
        Round(faults=silent, is_late=True),
    )
    if random.random() < 0.3:
        steps += (Restart(None),)
    return inserted(random, schedule, (*steps, Round(faults=faults_of(random)), Land()))


def _with_truncated_losses(random: Random, schedule: Schedule) -> Schedule:
    """The archive ends with what only the leader had, and a broker that lacked it assigns these offsets again."""
    if random.random() < 0.98:
        return schedule
    unseen = (
        Append(random.randrange(2**32), random.randint(3, 6), lags=True),
        Shrink(),
        *(Retention(n, 9) for n in (0, 1)),
    )
    again = UncleanLeader(), Append(random.randrange(2**32), random.randint(6, 16)), Round()
    return replace(inserted(random, schedule, (Round(), *unseen, Round(), *again)), records_lost=False)


MORE_FAULTS: Final[dict[str, Add]] = {
    "groups": _with_groups,
    "limits": _with_limits,
    "interruptions": _with_interruptions,
    "damage": _with_damage,
    "partitions": _with_partitions,
    "archive compaction": _with_archive_compaction,
    "third broker": _with_third_broker,
    "unclean leaders": _with_unclean_leaders,
    "new topics": _with_new_topics,
    "absent brokers": _with_absent_brokers,
    "disks": _with_disks,
    "moves": _with_moves,
    "reloads": _with_reloads,
    "no times": _with_no_times,
    "lost files": _with_lost_files,
    "stops": _with_stops,
    "overlaps": _with_overlaps,
    "full volumes": _with_full_volumes,
    "backoffs": _with_backoffs,
    "few pins": _with_few_pins,
    "lies": _with_lies,
    "misreads": _with_misreads,
    "unsafe stores": _with_unsafe_stores,
    "refused gaps": _with_refused_gaps,
    "truncated losses": _with_truncated_losses,
    "cleaners": _with_cleaners,
    "taken markers": _with_taken_markers,
    "strategies": _with_strategies,
    "deletions": _with_deletions,
    "files alone": _with_files_alone,
    "changes before listings": _with_changes_before_listings,
    "losses before the first commit": _with_losses_before_the_first_commit,
    "late deletes": _with_late_deletes,
    "touched files": _with_touched_files,
}
"""By the name of the stream. That of files alone takes out what those before it add."""
