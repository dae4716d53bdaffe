"""What an archiving partition asks of the broker's disks.

Apart from it, only the preparation of a segment reads files of the broker: its log, its indexes, and its producer snapshot.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from producer_state.table import ProducerTable
from sidecar.archive.continuity import LocalBatch
from sidecar.host.log_dir_fingerprint import LogDirFingerprint
from sidecar.logformat.leader_epochs import LeaderEpochs
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles, TopicPartition
from sidecar.ports import OpenFiles
from sidecar.segment.added_markers import AddedMarker
from sidecar.segment.dropped_producers import Dropped
from sidecar.segment.open_transactions import OpenTransactions
from sidecar.segment.producer_snapshot import KnownState


class LogDisk(OpenFiles, Protocol):
    """The partition directories of a broker. All of it raises SegmentChanged and PartitionError, if nothing else is said.

    The questions are about logs, not about bytes. So the simulation can answer them for logs that have no bytes.
    """

    def listed_again(self, files: PartitionFiles) -> PartitionFiles:
        """The partition as its directory is now. Raises SegmentChanged if that is another directory."""

    def require_unchanged(self, segment: SegmentFiles, listed: PartitionFiles, now_ms: int) -> None:
        """Raise SegmentChanged unless the segment is still that part of the log that it was when it was listed.

        `now_ms`: by the clock of the disk's machine.
        """

    def fingerprint(self, files: PartitionFiles) -> LogDirFingerprint:
        """What the directory is known by later, under a later process too. Raises nothing."""

    def with_snapshot(self, segment: SegmentFiles, files: PartitionFiles) -> SegmentFiles:
        """The segment with the producer snapshot at its end as the directory has it now. Raises nothing.

        Its roll has left one since it was listed as active; a recovery of the broker, or a move of the log, writes another file.
        """

    def leader_epochs(self, files: PartitionFiles) -> LeaderEpochs | None:
        """The partition's `leader-epoch-checkpoint`, None where it does not exist. Raises CorruptFile, PartitionError."""

    def first_dirty_offset(self, log_dir: Path, topic_partition: TopicPartition) -> int | None:
        """Up to where the broker's cleaner has been, None if never, by its checkpoint; 0 if that is unknown. Raises nothing.

        Above it, offsets may be missing too: of a restored log it is the start, and what an aborted cleaning did is not noted.
        """

    def dropped_producers(self, directory: Path) -> Dropped:
        """What a restore without producer state has left as a note. Raises nothing."""

    def producers_at(self, files: PartitionFiles, base_offset: int) -> KnownState:
        """Producer state at the log's first offset: what the broker's snapshot there says, else no producers. Raises nothing."""

    def largest_timestamp_ms(self, segment: SegmentFiles) -> int:
        """The largest timestamp of a rolled segment as its time index says, else its last write. Raises nothing."""

    def first_timestamp_ms(self, active: FileIdentity, base_offset: int) -> int:
        """The timestamp of an active segment's first batch, -1 where it takes much to tell. Raises nothing."""

    def newest_record(self, active: FileIdentity, base_offset: int) -> tuple[int, int]:
        """The largest timestamp of an active segment, -1 for none, and the offset after its last whole batch. Reads all of it."""

    def batch_in(self, segment: SegmentFiles, base_offset: int, end_offset: int, *, last: bool) -> LocalBatch | None:
        """The last or first batch whose last offset lies in `[base_offset, end_offset)`, None for none."""

    def leader_epoch_below(self, segment: SegmentFiles, offset: int) -> int | None:
        """The leader epoch of the last batch that begins below an offset; -1 in old formats, None for no batch."""

    def cut(self, segment: SegmentFiles, base_offset: int, descriptor: int) -> SegmentFiles | None:
        """The part of a segment from an offset on, None if none is known to begin there.

        `descriptor`: of its `.log`, which retention may have taken.
        """

    def is_of_cleaned_file(self, segment: SegmentFiles, descriptor: int) -> bool:
        """Whether a part of a segment comes from a file in which offsets are missing as a cleaner leaves it."""

    def added_markers(
        self,
        files: PartitionFiles,
        segment: SegmentFiles,
        descriptor: int,
        at_base: ProducerTable,
        checkpoint: LeaderEpochs | None,
    ) -> tuple[AddedMarker, ...]:
        """See `sidecar.segment.added_markers`."""

    def look_ahead(
        self,
        files: PartitionFiles,
        waiting: OpenTransactions,
        stable_end_offset: int,
        beat: Callable[[], None],
        taken: Callable[[int], None],
    ) -> OpenTransactions | None:
        """The transactions of a segment that have no marker below a stable end, None if all have. `taken`: gets the bytes read."""

    def undecided(self, files: PartitionFiles, waiting: OpenTransactions) -> OpenTransactions | None:
        """The transactions of a segment that have a batch left in the log, None if no batch of any is left."""


class HasDisk(Protocol):
    @property
    def disk(self) -> LogDisk: ...
