"""What a copy task hears of: the answer to each of its effects, and that the process is to stop."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.archive.state import PartitionState
from sidecar.errors import SidecarError
from sidecar.partition.effects import Effect
from sidecar.partition.facts import PartitionFacts
from sidecar.partition.wait_reason import WaitReason


@dataclass(frozen=True, slots=True)
class Event:
    """Something that has happened outside of the core."""


@dataclass(frozen=True, slots=True)
class ArchiveOpened(Event):
    """The archive, or its newest part, as it is now."""

    archive: PartitionState


@dataclass(frozen=True, slots=True)
class AttemptsSettled(Event):
    """No upload of an earlier task is left, but those that are gone on with."""


@dataclass(frozen=True, slots=True)
class ContinuityShown(Event):
    """The local log continues the archive."""


@dataclass(frozen=True, slots=True)
class LossRecorded(Event):
    """The archive after the commit that says what is lost."""

    archive: PartitionState


@dataclass(frozen=True, slots=True)
class GroupFound(Event):
    """So many segments were compacted together, and are to be committed together. 0: the segment goes by itself."""

    segments: int


@dataclass(frozen=True, slots=True)
class SegmentPrepared(Event):
    """A segment is read and its file open.

    `lost`: offsets `[from, to)` at its end that are nowhere on disk. `blocked`: the transaction that it waits for, if it does.
    """

    slot: int
    lost: tuple[int, int] | None = None
    blocked: WaitReason | None = None


@dataclass(frozen=True, slots=True)
class CopiesTaken(Event):
    """The slots that have a copy now. The others of the group go as they are, in the same commit."""

    slots: frozenset[int]


@dataclass(frozen=True, slots=True)
class UploadFinished(Event):
    """Both objects of a slot are in the store and checked. `end_offset`: what its commit will say of its end."""

    slot: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class UploadFailed(Event):
    slot: int
    error: SidecarError


@dataclass(frozen=True, slots=True)
class LeadershipConfirmed(Event):
    """The files are unchanged, and this is what the broker says now."""

    facts: PartitionFacts


@dataclass(frozen=True, slots=True)
class CommitWon(Event):
    """The commit is stored, and was read back. `archive`: after it."""

    archive: PartitionState


@dataclass(frozen=True, slots=True)
class CommitLost(Event):
    """Another writer has the commit number. A later plan goes on with the uploads on top of that writer's commit."""

    error: SidecarError


@dataclass(frozen=True, slots=True)
class CommitRefused(Event):
    """`append` has proven that no commit names the slots."""

    error: SidecarError


@dataclass(frozen=True, slots=True)
class CommitUnknown(Event):
    """The put was sent, and nothing proves whether it took hold."""

    error: SidecarError


@dataclass(frozen=True, slots=True)
class Abandoned(Event):
    """No upload of the task goes on any more, and no file is open."""


@dataclass(frozen=True, slots=True)
class StepFailed(Event):
    """Another effect than an upload could not be carried out. Of a commit: its put was not sent."""

    effect: Effect
    error: SidecarError


@dataclass(frozen=True, slots=True)
class NotBegun(Event):
    """An effect of the preparation was not begun, because the process is to end."""


@dataclass(frozen=True, slots=True)
class StopRequested(Event):
    """The process is to end: what is uploaded is committed, nothing else is begun."""
