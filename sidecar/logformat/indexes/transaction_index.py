"""The transaction index (`.txnindex`): the aborted transactions whose marker lies in the segment."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from producer_state.facts import MARKER_ABORT, Int16Column, Int64Column
from sidecar.errors import CorruptFile
from sidecar.logformat.batches import BatchColumns
from sidecar.logformat.indexes.offset_index import risen
from sidecar.logformat.indexes.verdict import FINE, IndexVerdict, disagrees, rebuild

if TYPE_CHECKING:
    from producer_state.replay import CompletedTransaction

VERSION = 0
ENTRY = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),  # base offset of the transaction's first batch, may lie in an earlier segment
        ("last_offset", ">i8"),  # offset of the abort marker
        # Right after the marker, on a leader. A follower takes all batches of a fetch in before it ends the transactions among
        # them: there it may lie far above the marker. Offsets at or above it may need later indexes.
        ("last_stable_offset", ">i8"),
    ]
)

_COLUMNS = ("producer_id", "first_offset", "last_offset", "last_stable_offset")


@dataclass(frozen=True, slots=True)
class TransactionIndex:
    """Columns of equal length n, in marker order. Offsets are absolute; `last_offset` is the abort marker's."""

    producer_id: Int64Column
    first_offset: Int64Column
    last_offset: Int64Column
    last_stable_offset: Int64Column

    def __len__(self) -> int:
        return int(self.producer_id.shape[0])

    def __getitem__(self, rows: slice | npt.NDArray[np.bool_]) -> TransactionIndex:
        return TransactionIndex(
            self.producer_id[rows], self.first_offset[rows], self.last_offset[rows], self.last_stable_offset[rows]
        )

    def to_bytes(self) -> bytes:
        """n entries of 34 bytes. Raises CorruptFile unless the markers' offsets ascend strictly."""
        wrong = np.flatnonzero(~risen(self.last_offset, -1))
        if wrong.size:
            offset = int(self.last_offset[wrong[0]])
            raise CorruptFile(f"abort marker at {offset} is not above the one before it", offset=offset)
        entries = np.empty(len(self), dtype=ENTRY)
        entries["version"] = VERSION
        for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset"):
            entries[name] = getattr(self, name)
        return entries.tobytes()


def from_completed(transactions: Iterable[CompletedTransaction], base_offset: int, end_offset: int) -> TransactionIndex:
    """The index of the segment `[base_offset, end_offset)`: the aborted ones of `transactions` with their marker in it."""
    rows = [
        (found.producer_id, found.first_offset, found.last_offset, found.last_stable_offset)
        for found in transactions
        if found.aborted and base_offset <= found.last_offset < end_offset
    ]
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 4)
    return TransactionIndex(columns[:, 0], columns[:, 1], columns[:, 2], columns[:, 3])


def read_transaction_index(data: bytes | memoryview, file: str = "") -> TransactionIndex:
    """All whole entries as they stand, order unchecked; a fragment at the end is left out, as brokers do.

    Raises CorruptFile for a version above 0. Source: TransactionIndex.iterator, AbortedTxn.
    """
    entries = np.frombuffer(data, dtype=ENTRY, count=len(data) // ENTRY.itemsize)
    version: Int16Column = entries["version"].astype(np.int16)
    wrong = np.flatnonzero(version > VERSION)
    if wrong.size:
        row = int(wrong[0])
        what = f"version {int(version[row])} of an aborted transaction is unknown, highest known {VERSION}"
        raise CorruptFile(what, file=file, position=row * ENTRY.itemsize)
    return TransactionIndex(
        entries["producer_id"].astype(np.int64),
        entries["first_offset"].astype(np.int64),
        entries["last_offset"].astype(np.int64),
        entries["last_stable_offset"].astype(np.int64),
    )


def check_as_broker(data: bytes | memoryview, base_offset: int, file: str = "") -> None:
    """What a broker demands when it loads the index. Raises CorruptFile. Source: TransactionIndex.sanityCheck."""
    index = read_transaction_index(data, file)
    wrong = np.flatnonzero(index.last_offset < base_offset)
    if wrong.size:
        row = int(wrong[0])
        raise CorruptFile(
            f"marker offset {int(index.last_offset[row])} lies below the segment's base {base_offset}",
            file=file,
            position=row * ENTRY.itemsize,
        )


@dataclass(slots=True)
class TransactionIndexCheck:
    """Compares a broker's transaction index with its log, chunk by chunk.

    An entry is right if its producer's abort marker is at exactly `last_offset`. Entries that a rebuild does not have
    are no fault: brokers up to 2.7 indexed empty transactions, and compaction removes the data of aborted ones.
    What lacks an aborted transaction of the log, or hides its beginning, is to be `merged` with the rebuilt one.
    `data` is None where the file is absent, which is how a broker says "none".
    """

    data: bytes | memoryview | None
    base_offset: int
    _index: TransactionIndex | None = field(init=False, default=None)
    _verdict: IndexVerdict | None = field(init=False, default=None)
    _next_row: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        try:
            index = read_transaction_index(self.data or b"")
        except CorruptFile as error:
            self._verdict = disagrees(f"transaction index: {error.what}", error.position)
            return
        self._index = index
        wrong = np.flatnonzero(
            ~risen(index.last_offset, self.base_offset - 1)
            | (index.first_offset > index.last_offset)
            | (index.first_offset < 0)
        )
        if wrong.size:
            self._fail(int(wrong[0]), f"{_entry(index, int(wrong[0]))} is impossible after the one before it")

    def _fail(self, row: int, reason: str) -> None:
        self._verdict = disagrees(f"transaction index: {reason}", row * ENTRY.itemsize)

    def add(self, columns: BatchColumns) -> None:
        """Take the next batches in file order."""
        index = self._index
        if index is None or self._verdict is not None or not len(columns):
            return
        first, self._next_row = (
            self._next_row,
            int(np.searchsorted(index.last_offset, columns.last_offset[-1], side="right")),
        )
        entries = slice(first, self._next_row)
        batch = np.searchsorted(columns.last_offset, index.last_offset[entries])
        wrong = np.flatnonzero(
            (columns.last_offset[batch] != index.last_offset[entries])
            | (columns.marker_type[batch] != MARKER_ABORT)
            | (columns.producer_id[batch] != index.producer_id[entries])
        )
        if wrong.size:
            row = first + int(wrong[0])
            self._fail(row, f"{_entry(index, row)}, but the log has no abort marker of that producer there")

    def finish(self, rebuilt: bytes) -> IndexVerdict:
        """The verdict, after the last batch. `rebuilt` is what replay found, b"" for no aborted transaction."""
        if self._verdict is not None or self._index is None:
            return self._verdict or FINE
        index = self._index
        if self._next_row < len(index):
            self._fail(self._next_row, f"{_entry(index, self._next_row)} is beyond the last batch")
            return self._verdict or FINE
        if len(self.data or b"") % ENTRY.itemsize:
            return rebuild("the transaction index ends in the middle of an entry")
        if not len(index):
            return rebuild("the transaction index lacks the log's aborted transactions") if rebuilt else FINE
        return self._compare(index, read_transaction_index(rebuilt))

    def _compare(self, index: TransactionIndex, rebuilt: TransactionIndex) -> IndexVerdict:
        row = np.minimum(np.searchsorted(index.last_offset, rebuilt.last_offset), len(index) - 1)
        missing = np.flatnonzero(index.last_offset[row] != rebuilt.last_offset)
        if missing.size:
            return rebuild(f"the transaction index lacks {_entry(rebuilt, int(missing[0]))}")
        # Lower offsets than ours are harmless and legal after compaction; higher ones may hide aborted records. A broker that
        # started from an empty producer snapshot writes such entries, and so do followers, in whom they hide nothing: which
        # batches came with one fetch is not in the log. Source: UnifiedLog.append, ProducerStateManager.lastStableOffset.
        wrong = np.flatnonzero(
            (index.first_offset[row] > rebuilt.first_offset)
            | (index.last_stable_offset[row] > rebuilt.last_stable_offset)
        )
        if wrong.size:
            ours = int(wrong[0])
            return rebuild(
                f"the transaction index has {_entry(index, int(row[ours]))}, the log says {_entry(rebuilt, ours)}"
            )
        return FINE


def merged(broker: bytes | memoryview | None, rebuilt: bytes) -> bytes:
    """The entries of both, and of two for the same marker the lower offsets: readers then miss no aborted record.

    Replay that began without the state at the segment's base does not know how early a transaction began, and a broker
    that lost its state does not either. A fragment at the end of the broker's file is left out.
    """
    theirs, ours = read_transaction_index(broker or b""), read_transaction_index(rebuilt)
    columns = {name: np.concatenate([getattr(theirs, name), getattr(ours, name)]) for name in _COLUMNS}
    last_offset, group = np.unique(columns["last_offset"], return_inverse=True)
    lowest = {name: np.full(len(last_offset), np.iinfo(np.int64).max) for name in _COLUMNS}
    for name in _COLUMNS:
        np.minimum.at(lowest[name], group, columns[name])
    return TransactionIndex(**{**lowest, "last_offset": last_offset}).to_bytes()


def _entry(index: TransactionIndex, row: int) -> str:
    return (
        f"entry {row} (producer {int(index.producer_id[row])}, offsets {int(index.first_offset[row])} to "
        f"{int(index.last_offset[row])}, last stable offset {int(index.last_stable_offset[row])})"
    )
