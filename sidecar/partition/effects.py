"""What a copy task asks for. The executor answers each effect with one event of `sidecar.partition.events`, but for the quiet ones.

"Answer": the result of `Answered`, None where nothing is said.

A slot is the number of a segment in the task's plan. The executor has the open files and uploads of each slot; the task has
only the number.
"""

from dataclasses import dataclass

from sidecar.errors import SidecarError
from sidecar.model import SegmentFiles
from sidecar.partition.wait_reason import WaitReason


@dataclass(frozen=True, slots=True)
class Effect:
    """Something to be done outside of the core."""


@dataclass(frozen=True, slots=True)
class OfSlot(Effect):
    slot: int


@dataclass(frozen=True, slots=True)
class OfSlots(Effect):
    slots: tuple[int, ...]


class OpenArchive(Effect):
    """Read what the archive has, as far as it is not known. Answer: the archive, or its newest part, as PartitionState."""


@dataclass(frozen=True, slots=True)
class SettleAttempts(Effect):
    """End every upload of an earlier task, or keep it to go on with.

    `segments`: those whose uploads may be gone on with.
    """

    segments: tuple[SegmentFiles, ...]


class CheckContinuity(Effect):
    """Prove that the local log continues the archive, and that no other lineage claims the topic."""


@dataclass(frozen=True, slots=True)
class RecordLoss(Effect):
    """Commit that offsets `[from_offset, to_offset)` above the archive's end are lost. Answer: the archive after that.

    `segment`: the one of which nothing is left, None for offsets of which no file is left either.
    """

    from_offset: int
    to_offset: int
    segment: SegmentFiles | None = None


class FindGroup(OfSlot):
    """Ask how many segments from this slot on are to be committed together. Answer: that number, 0 for one that goes by itself."""


class Prepare(OfSlot):
    """Read and check a segment, and keep its file open. Answer: `Prepared`."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """`lost`: offsets `[from, to)` at the segment's end that are nowhere on disk. `blocked`: the transaction that it waits for."""

    lost: tuple[int, int] | None = None
    blocked: WaitReason | None = None


class TakeCopies(OfSlots):
    """Put the compacted copies of a group in the place of its segments. If it fails, nothing is replaced.

    Answer: the slots that have a copy now. The others of the group go as they are, in the same commit.
    """


class Upload(OfSlot):
    """Send the two objects of a segment, and prove that the store has them. Answer: its end offset, as the commit will say."""


class ConfirmLeadership(OfSlots):
    """Check that the files of these slots are unchanged, and query the broker for the leader. Answer: PartitionFacts."""


class AppendCommit(OfSlots):
    """Commit these slots together, and read the commit back. Answer: the archive after it.

    A failure is CommitLost, CommitRefused or CommitUnknown; StepFailed before the put.
    """


@dataclass(frozen=True, slots=True)
class Abandon(Effect):
    """Wait until the uploads of these slots have ended, and close their files.

    `discards`: also remove what they left in the store. If not, the journal keeps it for a later task.
    """

    slots: tuple[int, ...]
    discards: bool


class DiscardAttempt(OfSlots):
    """Close the files of slots, and remove their objects, because it is proven that no commit names them. Quiet."""


class Release(OfSlots):
    """Close the files of slots. What the journal has of them stays there. Quiet."""


class Block(OfSlot):
    """Close the file of a slot whose segment waits for a transaction, and remember what it waits for. Quiet."""


@dataclass(frozen=True, slots=True)
class BreakUpGroup(Effect):
    """Have all segments of a group archived as they are. Quiet.

    `error`: why its copies cannot be committed, None where `detail` says that the group is not what it was.
    """

    detail: str
    error: SidecarError | None = None
