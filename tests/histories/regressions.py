"""Histories that once found something, each as short as it can be. The gate runs all of them.

A new one is what `python -m tests.histories` prints as minimised. Its comment says what went wrong.
"""

from __future__ import annotations

from typing import Final

from tests.histories.broker import LogShape
from tests.histories.faults import Fault
from tests.histories.history import (
    DAY_MS,
    HOUR_MS,
    Append,
    Collect,
    Compact,
    CompactGroups,
    DeleteRecords,
    HideCommit,
    History,
    LoseFile,
    Meanwhile,
    NewLeader,
    Restart,
    Retention,
    Settings,
    Undo,
    Upload,
    Wait,
)
from tests.histories.plain_log import Strategy

REGRESSIONS: Final[dict[str, History]] = {
    "output-too-large: segments were joined by sizes that were only expected": History(
        29,
        Settings(LogShape(keys=8, large_values=True, transactions=False), segment_bytes=1200),
        (Append(3441883895, 3, rolls=True), Append(2171354985, 1, rolls=True)),
    ),
    "live-object-missing: a compaction's commit could not be read back, and its objects were deleted": History(
        7,
        Settings(LogShape(codecs=(1,), null_keys=True, legacy_batches=4)),
        (
            Append(486808835, 1, rolls=True),
            Upload(),
            Compact((Fault("ObjectMissing", "read", after_commit_put=True),)),
        ),
    ),
    "record-lost: a deleted record won over one that was not": History(
        75,
        Settings(LogShape(large_values=True, transactions=False, null_keys=True, append_time=True), Strategy.TIMESTAMP),
        (Append(2675658154, 3, rolls=True), DeleteRecords(0.6)),
    ),
    "record-lost: a deleted record won over one in a copy": History(
        3,
        Settings(LogShape(versions=True, transactions=False, keys=2), Strategy.HEADER, before_upload=True),
        (
            Append(3, 3, rolls=True),
            Append(103, 3, rolls=True),
            DeleteRecords(0.4),
            Upload(),
            CompactGroups(),
            Upload(),
        ),
    ),
    "record-lost: a copy was committed without the one that held the winner": History(
        16,
        Settings(LogShape(codecs=(3,), legacy_batches=4), before_upload=True),
        (
            *(Append(seed, 1, rolls=True) for seed in (2542420913, 4171294560, 1853787067)),
            Upload(),
            CompactGroups(),
            LoseFile(2),
        ),
    ),
    "history-forked: a checkpoint whose commit was missing was passed over": History(
        3,
        Settings(),
        (
            *(Append(seed, 1, rolls=True) for seed in (3744439855, 2323054417, 36537551, 1691465851)),
            Upload(),
            HideCommit((Upload(),)),
        ),
    ),
    "deleted-before-grace: gc measured ages by a clock that was two days ahead": History(
        15,
        Settings(ahead_ms=2 * DAY_MS),
        (Append(4109759983, 1, rolls=True), Upload(), Compact(), Collect(is_ahead=True)),
    ),
    "silent-loss: a loss was committed, and nothing logged it since the commit could not be read back": History(
        1,
        Settings(LogShape(transactions=False)),
        (
            *(Append(seed, 1, rolls=True) for seed in range(1, 6)),
            LoseFile(1),
            Upload((Fault("ObjectExists", after=True, after_commit_put=True),)),
        ),
    ),
    "silent-loss: another broker led before the commit of a loss could be read back": History(
        700725,
        Settings(LogShape(legacy_batches=12)),
        (
            Append(3533343752, 1, rolls=True),
            Append(2801402857, 1, rolls=True),
            LoseFile(1),
            Upload(
                (
                    Fault("StoreUnavailable", calls=2, after=True, after_commit_put=True),
                    Fault("StoreDenied", first=2, calls=2, after_commit_put=True),
                )
            ),
            NewLeader(1),
        ),
    ),
    "not-archived: a stale listing made an archive seem empty": History(
        364,
        Settings(LogShape(codecs=(4,), legacy_batches=4, has_snapshots=False), before_upload=True, ahead_ms=2 * DAY_MS),
        (
            Append(1230433957, 1, rolls=True),
            Append(2535807313, 1, rolls=True),
            Upload(),
            Wait(660_000),
            Upload((Fault("Crash", "upload", first=2),)),
            Upload(is_stale=True),
            Retention(1),
            LoseFile(5),
        ),
    ),
    "history-forked: an undo read the commits alone, and did not see that the newest one was missing": History(
        500769,
        Settings(LogShape(codecs=(3,), legacy_batches=12), before_upload=True),
        (
            Append(1358443346, 2, rolls=True),
            Append(2747310574, 1, rolls=True),
            DeleteRecords(0.6),
            Append(578878548, 1, rolls=True),
            Upload(),
            Compact(is_by_hand=True),
            Wait(3 * HOUR_MS),
            Upload(),
            HideCommit((Undo(),)),
        ),
    ),
    "came-back: of the model, which had not seen a segment that was uploaded and replaced within one step": History(
        501079,
        Settings(LogShape(keys=2, large_values=True, null_keys=True, legacy_batches=12), Strategy.TIMESTAMP),
        (
            Append(3091110961, 3, rolls=True),
            Append(155037413, 1, rolls=True),
            Upload(),
            Append(4178774039, 1, rolls=True),
            Compact(meanwhile=Meanwhile(0, Upload()), is_by_hand=True),
            Undo(meanwhile=Meanwhile(18, Compact(is_by_hand=True))),
        ),
    ),
    "record-lost: of the model, which let a tombstone's time begin late where a gap hides how its transaction ended": History(
        300303,
        Settings(LogShape(large_values=True, null_keys=True, legacy_batches=4)),
        (
            Append(1168424390, 4, rolls=True),
            Append(1150338684, 2, rolls=True),
            Upload(),
            Append(2600738323, 2, rolls=True),
            Restart(),
            Retention(0),
            Append(1952560495, 3, rolls=True),
            Upload(),
            Compact(is_by_hand=True),
        ),
    ),
    "record-lost: of the model, which gave tombstones of magic 0 and 1 a delete horizon and asked the clock": History(
        300496,
        Settings(LogShape(codecs=(2,), null_keys=True, legacy_batches=12), delete_retention_ms=0, ahead_ms=2 * DAY_MS),
        (Append(902001240, 2, rolls=True), NewLeader(), Upload(), Compact(), NewLeader(), Compact()),
    ),
}
