"""Leader epochs: which leader wrote which offsets; the checkpoint file, and what of it goes with a segment."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from sidecar.errors import CorruptFile
from sidecar.logformat.batches import BatchColumns
from sidecar.logformat.checkpoints import parse_integer, read_entries, write_entries
from sidecar.logformat.headers import CURRENT_MAGIC, NO_LEADER_EPOCH
from sidecar.model import LeaderEpoch


@dataclass(frozen=True, slots=True)
class LeaderEpochs:
    """Entries in which epochs and start offsets both ascend strictly. Source: LeaderEpochFileCache."""

    entries: tuple[LeaderEpoch, ...] = ()

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def latest_epoch(self) -> int:
        """The highest epoch, -1 if none is known."""
        return self.entries[-1].epoch if self.entries else NO_LEADER_EPOCH

    def assign(self, epoch: int, start_offset: int) -> LeaderEpochs:
        """With one more epoch: see `epochs_of`."""
        if self.entries and epoch == self.latest_epoch and start_offset >= self.entries[-1].start_offset:
            return self
        return epochs_of([*((entry.epoch, entry.start_offset) for entry in self.entries), (epoch, start_offset)])

    def truncate_from_start(self, offset: int) -> LeaderEpochs:
        """Only what concerns offsets from `offset` on; the epoch in force there begins at `offset`."""
        removed = self._entries_up_to(offset)
        if not removed:
            return self
        return LeaderEpochs((LeaderEpoch(self.entries[removed - 1].epoch, offset), *self.entries[removed:]))

    def truncate_from_end(self, end_offset: int) -> LeaderEpochs:
        """Only the epochs that began below `end_offset`."""
        return self if end_offset < 0 else LeaderEpochs(self.entries[: self._entries_up_to(end_offset - 1)])

    def _entries_up_to(self, offset: int) -> int:
        return bisect_right(self.entries, offset, key=attrgetter("start_offset"))

    def in_range(self, first_offset: int, end_offset: int) -> LeaderEpochs:
        """The epochs of the offsets `[first_offset, end_offset)`. They begin above `first_offset` where the one there is unknown.

        Source: LeaderEpochFileCache.epochEntriesInRange, RemoteLogManager.RLMCopyTask.copyLogSegment.
        """
        cut = self if first_offset < 0 else self.truncate_from_start(first_offset)
        return cut.truncate_from_end(end_offset)

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch under which an offset was written, None below the first entry."""
        found = self._entries_up_to(offset)
        return self.entries[found - 1].epoch if found else None

    def end_offset_of(self, epoch: int) -> int | None:
        """The offset at which the first epoch above this one begins, None where there is none."""
        return next((entry.start_offset for entry in self.entries if entry.epoch > epoch), None)

    def same_below(self, later: LeaderEpochs) -> int | None:
        """Below this offset a log with these epochs has the records of one with the `later` epochs. None if that is not known.

        An epoch has one leader, so logs are equal up to where the first of them leaves the newest epoch of both. Source: KIP-101.
        """
        known = {entry.epoch for entry in later.entries}
        shared = next((entry.epoch for entry in reversed(self.entries) if entry.epoch in known), None)
        end_offset = None if shared is None else later.end_offset_of(shared)
        if shared is None or end_offset is None:
            return None
        own_end_offset = self.end_offset_of(shared)
        return end_offset if own_end_offset is None else min(end_offset, own_end_offset)

    def covers(self, offset: int) -> bool:
        """Whether the epoch of this offset is known."""
        return self.epoch_for_offset(offset) is not None

    def text_for_bundle(self, end_offset: int) -> bytes:
        """The checkpoint text of all epochs from the log's beginning that began below `end_offset`, not re-based."""
        return self.in_range(-1, end_offset).to_text()

    def to_text(self) -> bytes:
        """The text of the checkpoint file. Source: LeaderEpochCheckpointFile."""
        return write_entries(f"{entry.epoch} {entry.start_offset}" for entry in self.entries)


def epochs_of(pairs: Iterable[tuple[int, int]]) -> LeaderEpochs:
    """Epochs and start offsets assigned one after the other; later knowledge removes what contradicts it.

    Source: LeaderEpochFileCache.assign.
    """
    kept: list[LeaderEpoch] = []
    for epoch, start_offset in pairs:
        if kept and epoch == kept[-1].epoch and start_offset >= kept[-1].start_offset:
            continue
        while kept and (kept[-1].epoch >= epoch or kept[-1].start_offset >= start_offset):
            kept.pop()
        kept.append(LeaderEpoch(epoch, start_offset))
    return LeaderEpochs(tuple(kept))


def read_leader_epochs(data: bytes, file: str = "") -> LeaderEpochs:
    """What a broker knows after loading the checkpoint: entries in conflict with later ones are gone.

    Raises CorruptFile. Source: LeaderEpochCheckpointFile, LeaderEpochFileCache.
    """
    return epochs_of(
        (
            parse_integer(epoch, range(2**31), "leader epoch", file),
            parse_integer(start, range(2**63), "start offset", file),
        )
        for epoch, start in read_entries(data, 2, file)
    )


def complete(checkpoint: LeaderEpochs | None, batches: LeaderEpochs, base_offset: int) -> LeaderEpochs:
    """The epochs of a log whose checkpoint is missing or begins above the segment at `base_offset`.

    `batches` are the epochs that the segment's batches show from the first one on (`BuiltIndexes.epochs_from_base`).
    A checkpoint that covers the base is returned as it is, and also where no batch shows an epoch. Batches of message formats
    below v2 have none, and a cleaner may leave no batch. A broker's own tiering takes the map of such a segment from its
    checkpoint, too, which begins at the log start.
    """
    checkpoint = checkpoint or LeaderEpochs()
    if checkpoint.covers(base_offset) or not batches.entries:
        return checkpoint
    first = batches.entries[0]
    # The segment's range begins at its base, even if its first batch lies above.
    merged = LeaderEpochs((LeaderEpoch(first.epoch, min(base_offset, first.start_offset)), *batches.entries[1:]))
    for entry in checkpoint.entries:
        # A checkpoint's first entry begins at the log start where it was cut; the batches know where it really began.
        if merged.epoch_for_offset(entry.start_offset) != entry.epoch:
            merged = merged.assign(entry.epoch, entry.start_offset)
    return merged


class LeaderEpochCheck:
    """Compares the leader epoch in every v2 batch with the checkpoint, chunk by chunk.

    A batch's last offset decides, because the first entry may have been re-based to a log start inside a batch. Batches
    wholly below the log start are exempt: the checkpoint begins there.
    """

    def __init__(self, epochs: LeaderEpochs, log_start_offset: int) -> None:
        self._log_start_offset = log_start_offset
        self._start_offsets = np.array([entry.start_offset for entry in epochs.entries], dtype=np.int64)
        # A last element for index -1: below the first entry no epoch is right.
        self._epochs = np.array([*(entry.epoch for entry in epochs.entries), NO_LEADER_EPOCH], dtype=np.int64)

    def add(self, columns: BatchColumns) -> None:
        """Take the next batches. Raises CorruptFile for the first one that contradicts the checkpoint."""
        expected = self._epochs[np.searchsorted(self._start_offsets, columns.last_offset, side="right") - 1]
        checked = (columns.magic >= CURRENT_MAGIC) & (columns.last_offset >= self._log_start_offset)
        wrong = np.flatnonzero(checked & ((expected != columns.leader_epoch) | (expected == NO_LEADER_EPOCH)))
        if wrong.size:
            row = int(wrong[0])
            raise CorruptFile(
                f"the batch has leader epoch {int(columns.leader_epoch[row])}, but the leader epoch checkpoint has "
                f"{int(expected[row])} at its last offset {int(columns.last_offset[row])}. The log may have been "
                "truncated or replaced in the meantime",
                position=int(columns.position[row]),
                offset=int(columns.base_offset[row]),
            )
