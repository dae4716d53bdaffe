"""A history as a value: what the log is like, and step by step what happens. Made from a seed, or written down."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, TypeAlias

from tests.histories.broker import LogShape
from tests.histories.faults import CRASH, ERRORS, Fault
from tests.histories.plain_log import Strategy

SECOND_MS: Final = 1000
MINUTE_MS: Final = 60 * SECOND_MS
HOUR_MS: Final = 60 * MINUTE_MS
DAY_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Settings:
    """What does not change during a history.

    `asks_broker`: the sidecar asks the leader; else it has only files. `before_upload`: rolled segments wait to be compacted.
    `staged_in_store`: work files of compactions lie in the store. `segment_bytes`: of compacted segments.
    `ahead_ms`: the clock of the second broker's machine is so far ahead.
    """

    shape: LogShape = field(default_factory=LogShape)
    strategy: Strategy = Strategy.OFFSET
    asks_broker: bool = True
    before_upload: bool = False
    staged_in_store: bool = False
    segment_bytes: int = 4000
    min_compaction_lag_ms: int = 0
    delete_retention_ms: int = HOUR_MS
    keep_raw_ms: int = 0
    grace_period_ms: int = HOUR_MS
    uploads_ahead: int = 1
    ahead_ms: int = 0


@dataclass(frozen=True, slots=True)
class Append:
    """Producers write so many batches. `rolls`: the segment is closed behind them."""

    seed: int
    batches: int
    rolls: bool = False


@dataclass(frozen=True, slots=True)
class Retention:
    """The broker deletes its oldest rolled segments; so many stay."""

    keep: int


@dataclass(frozen=True, slots=True)
class DeleteRecords:
    """Of what is stable and not deleted, such a share is deleted."""

    share: float


@dataclass(frozen=True, slots=True)
class LoseFile:
    """A rolled segment vanishes from the disk."""

    number: int


@dataclass(frozen=True, slots=True)
class DropSnapshots:
    """All producer snapshots vanish from the disk."""


@dataclass(frozen=True, slots=True)
class NewLeader:
    """The other broker leads from now on; the log lacks so many batches of its end."""

    truncate_batches: int = 0


@dataclass(frozen=True, slots=True)
class Wait:
    """Time goes by."""

    milliseconds: int


@dataclass(frozen=True, slots=True)
class Restart:
    """The leader's sidecar begins again. `forgets`: its volume is lost."""

    forgets: bool = False


@dataclass(frozen=True, slots=True)
class Upload:
    """A round of the leader's sidecar, or of one that still believes to lead."""

    faults: tuple[Fault, ...] = ()
    is_stale: bool = False
    is_zombie: bool = False
    meanwhile: Meanwhile | None = None


@dataclass(frozen=True, slots=True)
class CompactGroups:
    """The leader's sidecar compacts what waits for its upload."""


@dataclass(frozen=True, slots=True)
class Compact:
    """The archive is compacted, by `run`, or by hand: then nobody is asked whether the leader still leads."""

    faults: tuple[Fault, ...] = ()
    is_stale: bool = False
    meanwhile: Meanwhile | None = None
    is_by_hand: bool = False


@dataclass(frozen=True, slots=True)
class Undo:
    """The newest compaction is undone."""

    faults: tuple[Fault, ...] = ()
    is_stale: bool = False
    meanwhile: Meanwhile | None = None


@dataclass(frozen=True, slots=True)
class Collect:
    """`gc`, on the machine of the first or the second broker."""

    faults: tuple[Fault, ...] = ()
    is_stale: bool = False
    is_ahead: bool = False
    meanwhile: Meanwhile | None = None


@dataclass(frozen=True, slots=True)
class Verify:
    """`verify`, shallow or deep."""

    faults: tuple[Fault, ...] = ()
    is_deep: bool = True


@dataclass(frozen=True, slots=True)
class DamageCheckpoint:
    """A byte of the newest checkpoint flips in the store."""


@dataclass(frozen=True, slots=True)
class Restore:
    """A restore into a fresh directory, begun again without faults where it failed, and compared with the model."""

    faults: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class HideCommit:
    """The store loses the commit of the newest checkpoint; processes without a memory work on; then the commit is back."""

    steps: tuple[Upload | Compact | Collect | Undo, ...] = ()


@dataclass(frozen=True, slots=True)
class Meanwhile:
    """Another process, or the broker, does this at the first actor's call number `call` (from 0)."""

    call: int
    step: Upload | Compact | Collect | Undo | Wait | DeleteRecords | NewLeader | Retention


Process: TypeAlias = Upload | Compact | Collect | Undo
"""A process that works on the archive."""

Step: TypeAlias = (
    Append
    | Retention
    | DeleteRecords
    | LoseFile
    | DropSnapshots
    | NewLeader
    | Wait
    | Restart
    | Upload
    | CompactGroups
    | Compact
    | Collect
    | Undo
    | Verify
    | DamageCheckpoint
    | Restore
    | HideCommit
)


@dataclass(frozen=True, slots=True)
class History:
    """Settings and steps. `seed` is that of random ids."""

    seed: int
    settings: Settings
    steps: tuple[Step, ...]


def random_history(seed: int) -> History:
    """The history of this seed."""
    random = Random(f"history {seed}")
    return History(seed, _settings(random), tuple(_steps(random)))


def _settings(random: Random) -> Settings:
    strategy = random.choice(tuple(Strategy))
    shape = LogShape(
        keys=random.choice((2, 4, 4, 8)),
        large_values=random.random() < 0.4,
        codecs=random.choice(((0,), (0,), (1,), (2,), (3,), (4,), (0, 1, 2, 3, 4))),
        transactions=random.random() < 0.6,
        versions=strategy is Strategy.HEADER,
        null_keys=random.random() < 0.3,
        legacy_batches=random.choice((0, 0, 0, 4, 12)),
        has_snapshots=random.random() < 0.8,
        append_time=random.random() < 0.2,
    )
    return Settings(
        shape,
        strategy,
        asks_broker=random.random() < 0.75,
        before_upload=random.random() < 0.35,
        staged_in_store=random.random() < 0.3,
        segment_bytes=random.choice((1200, 2500, 8000, 100_000)),
        min_compaction_lag_ms=random.choice((0, 0, 0, HOUR_MS)),
        delete_retention_ms=random.choice((0, HOUR_MS, 7 * DAY_MS)),
        keep_raw_ms=random.choice((0, 0, DAY_MS)),
        grace_period_ms=random.choice((0, HOUR_MS, DAY_MS)),
        uploads_ahead=random.choice((1, 1, 2)),
        ahead_ms=random.choice((0, 0, 0, 2 * DAY_MS)),
    )


def _steps(random: Random) -> list[Step]:
    begin = range(random.randint(2, 5))
    steps: list[Step] = [Append(random.randrange(2**32), random.randint(1, 4), rolls=True) for _ in begin]
    for _ in range(random.randint(8, 26)):
        steps += _next(random)
    return steps


def _next(random: Random) -> list[Step]:
    draw = random.random()
    if draw < 0.24:
        written = Append(random.randrange(2**32), random.randint(1, 4), rolls=random.random() < 0.8)
        return [written, _upload(random)] if random.random() < 0.4 else [written]
    if draw < 0.50:
        return [_upload(random)]
    if draw < 0.56:
        return [CompactGroups()]
    if draw < 0.66:
        return [_compact(random)]
    if draw < 0.685:
        return [_compact(random), _undo(random)] if random.random() < 0.6 else [_undo(random)]
    if draw < 0.74:
        return [_collect(random)]
    if draw < 0.79:
        return [Wait(random.choice((SECOND_MS, MINUTE_MS, 11 * MINUTE_MS, 3 * HOUR_MS, 30 * HOUR_MS, 30 * HOUR_MS)))]
    if draw < 0.84:
        return [DeleteRecords(random.choice((0.1, 0.3, 0.6, 1.0)))]
    if draw < 0.88:
        return [NewLeader(random.choice((0, 0, 1, 3)))]
    if draw < 0.91:
        return [Restart(forgets=random.random() < 0.4)]
    if draw < 0.93:
        return [Retention(random.randrange(3))]
    if draw < 0.945:
        return [LoseFile(random.randrange(8))]
    if draw < 0.955:
        return [DropSnapshots()]
    if draw < 0.972:
        return [Restore(_faults(random))]
    if draw < 0.982:
        return [Verify(_faults(random), random.random() < 0.5)]
    if draw < 0.985:
        return [DamageCheckpoint()]
    inner = (random.choice((_upload, _compact, _collect, _undo))(random) for _ in range(random.randint(1, 2)))
    # A listing that lacks the checkpoint as well leaves nothing by which the loss could be seen.
    return [HideCommit(tuple(replace(step, is_stale=False) for step in inner))]


def _upload(random: Random) -> Upload:
    return Upload(_faults(random), _is_rare(random), random.random() < 0.06, _meanwhile(random))


def _compact(random: Random) -> Compact:
    return Compact(_faults(random), _is_rare(random), _meanwhile(random), random.random() < 0.3)


def _undo(random: Random) -> Undo:
    return Undo(_faults(random), _is_rare(random), _meanwhile(random))


def _collect(random: Random) -> Collect:
    is_stale = random.random() < 0.25
    return Collect(_faults(random), is_stale, random.random() < 0.3, _meanwhile(random))


def _meanwhile(random: Random) -> Meanwhile | None:
    if random.random() > 0.16:
        return None
    call = random.choice((random.randrange(4), random.randrange(40)))
    draw = random.random()
    if draw < 0.2:
        return Meanwhile(call, Upload(is_zombie=random.random() < 0.5))
    if draw < 0.4:
        return Meanwhile(call, Compact(is_by_hand=random.random() < 0.3))
    if draw < 0.55:
        return Meanwhile(call, Collect(is_ahead=random.random() < 0.3))
    if draw < 0.7:
        return Meanwhile(call, Undo())
    if draw < 0.78:
        return Meanwhile(call, Wait(random.choice((MINUTE_MS, 3 * HOUR_MS, 30 * HOUR_MS))))
    if draw < 0.86:
        return Meanwhile(call, DeleteRecords(random.choice((0.3, 0.6, 1.0))))
    if draw < 0.93:
        return Meanwhile(call, NewLeader(random.choice((0, 0, 1))))
    return Meanwhile(call, Retention(random.randrange(3)))


def _is_rare(random: Random) -> bool:
    return random.random() < 0.1


def _faults(random: Random) -> tuple[Fault, ...]:
    """None in a third of the cases; else one or two."""
    count = random.choice((0, 0, 1, 1, 1, 2))
    return tuple(_fault(random) for _ in range(count))


def _fault(random: Random) -> Fault:
    error = random.choice((*ERRORS, CRASH, CRASH))
    after = random.random() < 0.5
    draw = random.random()
    if draw < 0.35:  # Around a commit: whether it stands is what matters most.
        operation = random.choice(("put_if_absent", "read", "read", ""))
        calls = random.choice((1, 1, 2, 8))
        if operation == "put_if_absent":
            return Fault(error, operation, "/commits/", random.randrange(3), calls, after)
        return Fault(error, operation, "", random.choice((0, 0, 1, 2)), calls, after, after_commit_put=True)
    if draw < 0.65:
        operations = ("upload", "read", "head", "list", "delete", "stream", "put_if_absent", "unfinished_uploads")
        return Fault(error, random.choice(operations), "", random.randrange(4), random.choice((1, 1, 3)), after)
    first = random.choice((random.randrange(4), random.randrange(4), random.randrange(12), random.randrange(40)))
    return Fault(error, "", "", first, random.choice((1, 1, 4, 50)), after)
