"""Schedules that once ended with a finding, each with what it was."""

from __future__ import annotations

from typing import Final

from tests.histories.faults import Fault
from tests.simulation.cluster import LogShape
from tests.simulation.schedule import (
    Append,
    Away,
    ChangeStrategy,
    Clean,
    Collect,
    Compact,
    CompactArchive,
    DeleteRecords,
    Hide,
    Jump,
    LoseFile,
    Meanwhile,
    Move,
    NewLeader,
    Recreate,
    Reload,
    Retention,
    Roll,
    Round,
    Schedule,
    Shrink,
    Touch,
    UncleanLeader,
    Undo,
    Wait,
)

REGRESSIONS: Final[dict[str, Schedule]] = {
    # Of the model: the archive ends with a gap, and its last segment is gone from the new leader's log, which has no topic id.
    # The sidecar is right to stop (LineageUnknown).
    "a gap at the archive's end, and a new leader without a topic id": Schedule(
        seed=9820,
        steps=(
            Append(seed=1557903675, batches=3),
            Round(is_late=True),
            Append(seed=3851503208, batches=3),
            Retention(broker=0, segments=9),
            Retention(broker=1),
            Round(is_late=True),
            NewLeader(),
        ),
        shape=LogShape(roll_batches=(2, 3)),
        has_topic_id=False,
    ),
    # Of the product: a copy of a whole segment was committed for what another leader had not archived of it.
    "another leader archives a part of a segment that waits with its copy": Schedule(
        seed=21546,
        steps=(
            Append(seed=368421996, batches=4),
            Round(is_late=True),
            Compact(),
            Roll(broker=0),
            Append(seed=3536896367, batches=4),
            Round(),
            Wait(milliseconds=108000000),
            Round(faults=(Fault(error="Crash", first=2, after_commit_put=True),)),
            Round(),
            NewLeader(),
            Round(),
            Compact(broker=0),
            NewLeader(),
        ),
        shape=LogShape(transactions=False, idempotent=False),
        compacts=True,
    ),
    # Of the product: a partition had two tasks, because its plan waited to begin while it was planned again.
    "a plan that waits begins while a check plans it again": Schedule(
        seed=653,
        steps=(
            Append(seed=1055810360, batches=3, partition=1),
            Append(seed=4050957174, batches=3),
            Round(),
            Append(seed=884514548, partition=2),
            Round(moves=8),
        ),
        shape=LogShape(roll_batches=(2, 1), transactions=False, idempotent=False),
        partitions=3,
        workers=2,
        compacts=True,
    ),
    # Of the product: it waited for its compaction until a wall clock that was set back had caught up.
    "a wall clock is set back while a segment waits to be compacted": Schedule(
        seed=303,
        steps=(Jump(broker=1, milliseconds=172800000), Append(seed=1712910945, batches=3), NewLeader(), Round()),
        shape=LogShape(roll_batches=(2, 2), transactions=False, idempotent=False),
        compacts=True,
    ),
    # Of the model: a follower kept an epoch that its new leader does not know.
    "a leader of an epoch without a batch follows": Schedule(
        seed=21247,
        steps=(
            Append(seed=2213668758),
            NewLeader(),
            Append(seed=902685134, batches=2),
            Append(seed=38067157, lags=True),
            Round(is_late=True),
            NewLeader(fetches=False),
            Collect(broker=1, meanwhile=Meanwhile(call=3, steps=(NewLeader(),))),
            NewLeader(),
        ),
        shape=LogShape(roll_batches=(1, 3), transactions=False, idempotent=False),
    ),
    # Of the model: a former leader archives records, all of which remain, while the marker of their transaction is lost.
    "an unclean election loses the marker of a transaction whose records a former leader archives": Schedule(
        seed=5013143,
        steps=(
            Append(seed=181512824, batches=2),
            Round(is_late=True, moves=8),
            NewLeader(fetches=False),
            Append(seed=2831575603, batches=6),
            NewLeader(),
            Append(seed=3640432066, lags=True),
            Shrink(),
            Round(),
            UncleanLeader(),
            Round(broker=0, is_asleep=True),
        ),
        shape=LogShape(roll_batches=(1, 1)),
    ),
    # Of the product: it reported offsets as lost which it had archived before the broker's log start confirmed an earlier loss.
    "retention goes on while it is doubted whether records were deleted on purpose": Schedule(
        seed=5031774,
        steps=(
            Append(seed=1094623411, batches=2),
            NewLeader(),
            Append(seed=1981901952, batches=5),
            Round(faults=(Fault(error="StoreUnsafe", first=2),)),
            Retention(broker=1, segments=2),
            Round(is_asleep=True),
            Retention(broker=1, segments=2),
        ),
        shape=LogShape(roll_batches=(2, 2), transactions=False, idempotent=False),
    ),
    # Of the model: it allowed too few cycles for segments that only pins have, where the queue takes one at a time.
    "segments beyond the queue are pinned when retention deletes them": Schedule(
        seed=7000528,
        steps=(
            Append(seed=3049535505, batches=5),
            NewLeader(fetches=False),
            Append(seed=4203290000, batches=5),
            Round(),
            Retention(broker=1, segments=9),
        ),
        shape=LogShape(roll_batches=(1, 1), transactions=False, idempotent=False),
        max_queue=1,
    ),
    # Of the model: a compaction goes by the marker of an aborted transaction that is archived, and that the new leader's log lacks.
    "a compaction after an unclean election that has lost an archived marker": Schedule(
        seed=8076911,
        steps=(
            Append(seed=3232378161, batches=3),
            Append(seed=1031317404, batches=3),
            Append(seed=792610427, batches=3, lags=True),
            Shrink(),
            Round(),
            UncleanLeader(),
            Append(seed=2887659419),
            Round(),
            CompactArchive(seed=1652282011),
        ),
        shape=LogShape(roll_batches=(1, 3)),
    ),
    # Of the product: what lies below the end of the deleted topic's archive was not pinned.
    "a topic is created again while its partition backs off": Schedule(
        seed=20000214,
        steps=(
            Append(seed=2602559819, batches=2),
            Append(seed=3760406609, batches=9),
            Round(meanwhile=Meanwhile(call=3, steps=(NewLeader(fetches=False),), operation="confirm")),
            Recreate(),
            Append(seed=255110222, batches=3),
            Round(),
        ),
        shape=LogShape(roll_batches=(2, 3), transactions=False, idempotent=False),
        retry_wait_s=60.0,
    ),
    # Of the product: what rolled above a gap was not pinned while the segments below it, which only pins have, waited.
    "retention takes what was never pinned while the store takes no upload": Schedule(
        seed=20001493,
        steps=(
            Append(seed=2943344632, batches=4),
            Round(faults=(Fault(error="StoreMissing", first=3),)),
            Retention(broker=0, segments=9),
            Append(seed=3336679828, batches=4),
            Round(faults=(Fault(error="StoreUnavailable", operation="upload"),)),
        ),
        shape=LogShape(roll_batches=(3, 2, 3), transactions=False, idempotent=False),
    ),
    # Of the product: nothing that rolled while the store refused to be read was pinned.
    "the store cannot be read while segments roll": Schedule(
        seed=20000059,
        steps=(
            NewLeader(),
            Append(seed=1499341127),
            Append(seed=4294198229, batches=3),
            Round(faults=(Fault(error="ObjectExists", first=4, after=True),), is_late=True),
            Retention(broker=1, segments=9),
            Append(seed=953951843, batches=4),
            Round(faults=(Fault(error="ObjectDamaged", first=2),)),
        ),
        shape=LogShape(transactions=False, idempotent=False),
    ),
    # Of the product: the copies of a group are uploaded side by side, and its first one began last. Only its age was checked,
    # so the commit named another one, which gc by hand had deleted while the host slept.
    "gc takes a copy whose upload began before that of the group's first": Schedule(
        seed=10086224,
        steps=(
            NewLeader(),
            Append(seed=357665778, batches=2),
            Append(seed=1615870265, batches=5, lags=True),
            Round(),
            Compact(),
            Append(seed=3921461164),
            Round(),
            Append(seed=424070433, batches=4),
            Append(seed=3241236237, batches=2),
            Append(seed=4008840861, batches=3),
            NewLeader(),
            Round(),
            Compact(broker=0),
            Round(
                meanwhile=Meanwhile(call=10, steps=(Wait(milliseconds=108000000), Collect(is_by_hand=True))),
                is_late=True,
                order=2100949639,
            ),
        ),
        shape=LogShape(roll_batches=(2, 2), transactions=False, idempotent=False),
        uploads_ahead=3,
        compacts=True,
    ),
    # Of the product: what is left in the directory was not pinned while what only a pin has was archived first.
    "what comes after a pinned segment is not pinned": Schedule(
        seed=10326581,
        steps=(
            Append(seed=2899463969, batches=2),
            Round(is_late=True, full=(2, 3)),
            Compact(),
            Round(lies=2, full=(10, 11)),
            Reload(uploads_ahead=3),
            Retention(broker=0),
            Wait(milliseconds=108000000),
            Append(seed=2825907104),
            Round(full=(6, 8)),
        ),
        shape=LogShape(roll_batches=(1, 3), transactions=False, idempotent=False),
        compacts=True,
        retry_wait_s=60.0,
    ),
    # Of the product: the broker twice said where the log began before retention. The gap was recorded as lost, though a pinned
    # segment had its records, and the answer that confirmed the leader showed that retention had deleted that segment.
    "a loss is recorded by an old answer while the segment is pinned": Schedule(
        seed=11319462,
        steps=(
            Append(seed=1022341971, batches=2),
            Append(seed=1143598426, partition=1),
            NewLeader(fetches=False, partition=1),
            Round(),
            Append(seed=3719825342, batches=3, partition=1),
            Round(broker=1),
            Compact(broker=0),
            Round(meanwhile=Meanwhile(call=6, steps=(Wait(milliseconds=46800000),)), is_late=True),
            Round(broker=1),
            Retention(broker=1, segments=9, partition=1),
            Round(broker=1, is_asleep=True, is_late=True),
            Round(broker=1, is_asleep=True, is_late=True, moves=8, checks=False),
            Round(broker=1, lies=1),
        ),
        shape=LogShape(roll_batches=(1, 1), transactions=False, idempotent=False),
        partitions=3,
        compacts=True,
        max_queue=2,
    ),
    # The same, with an answer of the past to the confirmation, too.
    "a loss is recorded while the segment is pinned, and every answer is old": Schedule(
        seed=11319462,
        steps=(
            Append(seed=1022341971, batches=2),
            Append(seed=1143598426, partition=1),
            NewLeader(fetches=False, partition=1),
            Round(),
            Append(seed=3719825342, batches=3, partition=1),
            Round(broker=1),
            Compact(broker=0),
            Round(meanwhile=Meanwhile(call=6, steps=(Wait(milliseconds=46800000),)), is_late=True),
            Round(broker=1),
            Retention(broker=1, segments=9, partition=1),
            Round(broker=1, is_asleep=True, is_late=True),
            Round(broker=1, is_asleep=True, is_late=True, moves=8, checks=False),
            Round(broker=1, is_asleep=True),
        ),
        shape=LogShape(roll_batches=(1, 1), transactions=False, idempotent=False),
        partitions=3,
        compacts=True,
        max_queue=2,
    ),
    # Of the product: the leader's replica was not cleaned yet, and had another first batch than the archived segment, which another
    # broker had cleaned. The sidecar took the log for a truncated one, and stopped.
    "a replica that is not cleaned yet continues the archive of a cleaned one": Schedule(
        seed=7652,
        steps=(
            Append(seed=1026402678, batches=3, partition=1),
            Append(seed=2375087437, partition=1),
            Clean(broker=0, first=8, count=3, partition=1),
            Round(is_late=True),
            NewLeader(partition=1),
        ),
        shape=LogShape(transactions=False, is_cleaned=True),
        partitions=2,
        workers=2,
        retry_wait_s=5.0,
    ),
    # Of the product: the replica had moved after it was cleaned, and knew a leader epoch only from the first batch that was left of
    # it. The sidecar took the log for a truncated one, and stopped.
    "a moved replica of a cleaned log begins a leader epoch later than the archive": Schedule(
        seed=7386,
        steps=(
            Append(seed=3810243818, batches=5),
            NewLeader(),
            NewLeader(),
            Append(seed=441861409, batches=6),
            Round(),
            Clean(broker=0, first=1, count=3),
            Move(broker=0, number=1),
        ),
        shape=LogShape(roll_batches=(2, 3), transactions=False, idempotent=False, is_cleaned=True),
        partitions=2,
        workers=2,
        pins=0,
    ),
    # Of the product: segments that had no name while a cleaner replaced them were reported as lost.
    "two checks of an empty archive's partition find a cleaner at work": Schedule(
        seed=202730,
        steps=(
            Round(),
            Append(seed=28772786, batches=3, partition=2),
            Clean(broker=0, first=5, count=2, is_cut_off=True, partition=2),
            Round(),
            Round(),
        ),
        shape=LogShape(roll_batches=(2, 2), transactions=False, idempotent=False, is_cleaned=True),
        partitions=3,
        workers=2,
    ),
    # Of the product: while what only pins have was archived first, segments behind it were not pinned if the last one waited.
    "what rolled behind what only pins have is pinned, whatever the last segment waits for": Schedule(
        seed=12073372,
        steps=(
            UncleanLeader(),
            Append(seed=2313514854, batches=4),
            Round(moves=5, full=(1, 2)),
            Round(),
            Append(seed=2328559020, batches=2),
            Retention(broker=1, segments=2),
            Reload(max_queue=1),
            Round(),
        ),
        shape=LogShape(roll_batches=(3, 1)),
        compacts=True,
    ),
    # Of the model: of two partitions that stop at a gap, each round tries one.
    "two partitions stop at a gap, and the queue takes one segment": Schedule(
        seed=14001148,
        steps=(
            Append(seed=1052694776, batches=7, partition=1),
            NewLeader(fetches=False, partition=1),
            Append(seed=911982897, batches=4),
            Append(seed=604949962, batches=3),
            LoseFile(broker=1, number=3),
            NewLeader(fetches=False),
            Round(meanwhile=Meanwhile(call=4, steps=(LoseFile(broker=1, number=6, partition=1),))),
        ),
        partitions=3,
        max_queue=1,
        records_lost=False,
    ),
    # Of the product: what declared a change of the strategy was removed while the archive was compacted, which was committed.
    "a strategy is declared no more when the compaction by it is committed": Schedule(
        seed=4391,
        steps=(
            Append(seed=3877616294),
            Append(seed=2241774865, batches=6),
            Round(),
            CompactArchive(seed=1750956141, is_by_hand=True, strategy="header"),
            Append(seed=627679580, batches=4),
            Round(),
            CompactArchive(seed=828452535, meanwhile=Meanwhile(call=17, steps=(ChangeStrategy(strategy=None),))),
        ),
        shape=LogShape(roll_batches=(2, 1), transactions=False, idempotent=False),
        strategy="offset",
    ),
    # Of the product: only the plan of a compaction checked the newest strategy. A compaction by hand that changed no segment
    # came before the commit, so offset followed on it although nothing declared it.
    "a compaction by hand that changes no segment comes before the commit of another strategy": Schedule(
        seed=11,
        steps=(
            Append(seed=11, batches=5),
            Round(),
            CompactArchive(seed=117, is_by_hand=True, strategy="offset"),
            CompactArchive(
                seed=0,
                meanwhile=Meanwhile(call=18, steps=(CompactArchive(seed=117, is_by_hand=True, strategy="header"),)),
            ),
        ),
        shape=LogShape(roll_batches=(1, 1), transactions=False, idempotent=False),
    ),
    # Of the model: the cleaner emptied a pinned segment, whose new file was pinned in its place, and retention took that one.
    "a pinned segment that the cleaner emptied, and that retention took": Schedule(
        seed=41002607,
        steps=(
            Append(seed=483113697, batches=2),
            Append(seed=2994190100, batches=5),
            Append(seed=2351631293, batches=6),
            Append(seed=1956318279, batches=3),
            Append(seed=1624555830, batches=3),
            Round(),
            Round(meanwhile=Meanwhile(call=1, steps=(Clean(broker=0, first=8),))),
            Round(
                faults=(Fault(error="ObjectExists", operation="put_if_absent", key_part="/commits/"),),
                meanwhile=Meanwhile(call=7, steps=(Retention(broker=0, segments=9),)),
            ),
            Round(full=(10, 11)),
        ),
        shape=LogShape(roll_batches=(2, 1), transactions=False, idempotent=False, is_cleaned=True),
        max_queue=3,
    ),
    # Of the product: a segment's end that is on no disk was recorded as lost, though DeleteRecords had deleted it.
    "a file is lost below a log start that DeleteRecords moved": Schedule(
        seed=291,
        steps=(
            Append(seed=898548212, batches=7),
            Round(faults=(Fault(error="StoreUnavailable", operation="upload"),)),
            DeleteRecords(share=0.6),
            Round(faults=(Fault(error="StoreUnavailable", operation="upload"),)),
            LoseFile(broker=0, number=4),
        ),
    ),
    # Of the product: the new leader had not fetched the log start of the one before, and still had what the archive has as lost.
    # Its sidecar read the archive as it was before a segment above the loss, took the log for a truncated one, and stopped.
    "a new leader still has what the archive ends with as lost": Schedule(
        seed=71400903,
        steps=(
            Append(seed=2263064711, batches=3),
            Append(seed=4192531935, batches=3),
            Round(is_late=True),
            Append(seed=3881296756, batches=5),
            Append(seed=1260531259, batches=4),
            Append(seed=2194451672, batches=6),
            Retention(broker=0, segments=9),
            Round(faults=(Fault(error="StoreUnavailable", operation="read", calls=8, after_commit_put=True),)),
            Round(),
            NewLeader(),
            Round(is_stale=True, is_late=True),
        ),
        shape=LogShape(roll_batches=(2, 1), transactions=False, idempotent=False),
        records_lost=False,
    ),
    # Of the product: DeleteRecords moves the first leader epoch of a log to its start. Below, another replica's cleaned batch
    # counted as one of another log.
    "records are deleted in a replica that is not cleaned, above what another one archived": Schedule(
        seed=12190535,
        steps=(
            Append(seed=1933740128, batches=7),
            Clean(broker=0, first=3, count=3),
            Round(),
            NewLeader(),
            DeleteRecords(share=0.6),
        ),
        shape=LogShape(roll_batches=(2, 1), transactions=False, idempotent=False, is_cleaned=True),
    ),
    # The same, where all that the archive has is deleted: the first epoch is a later one than any that was archived.
    "all records are deleted in a replica that is not cleaned": Schedule(
        seed=12240413,
        steps=(
            Append(seed=343475018),
            Append(seed=3673615766),
            Append(seed=4020021531, batches=4),
            Round(meanwhile=Meanwhile(call=0, steps=(Clean(broker=0, first=3, count=2),), operation="read segment")),
            Round(),
            NewLeader(),
            DeleteRecords(share=1.0),
        ),
        shape=LogShape(roll_batches=(1, 1), transactions=False, is_cleaned=True),
    ),
    # An unclean election lost what the archive ends with as lost, and its leader assigned these offsets again.
    "a log is truncated into the loss that its archive ends with": Schedule(
        seed=1,
        steps=(
            Append(seed=1, batches=6),
            Round(),
            Append(seed=2, batches=6, lags=True),
            Shrink(),
            Retention(broker=0, segments=9),
            Round(),
            UncleanLeader(),
            Append(seed=1, batches=16),
            Round(),
        ),
        shape=LogShape(roll_batches=(2, 2), transactions=False, idempotent=False),
        records_lost=False,
    ),
    # Of the product, and of the model, which took what comes above an open transaction for unstable without a connection, too: what
    # waits for its marker was pinned, and nothing above it.
    "segments roll above one that waits for a transaction, without a connection": Schedule(
        seed=6,
        steps=(
            Append(seed=1244761938, batches=4),
            Round(),
            Append(seed=2157407984, batches=3),
            Round(),
        ),
        has_connection=False,
    ),
    # Of the product: the log start lay inside of what a compaction had merged, and might have been a border there. When an undo had
    # shown that it was none, that was still remembered.
    "records are deleted inside of what was merged, and the compaction is undone": Schedule(
        seed=12151869,
        steps=(
            Append(seed=4189924129, batches=4),
            Round(),
            Append(seed=633548154, batches=4),
            Collect(meanwhile=Meanwhile(call=2, steps=(Round(),))),
            Append(seed=2677059376, batches=2),
            CompactArchive(seed=1166026108),
            Undo(meanwhile=Meanwhile(call=11, steps=(DeleteRecords(share=0.6), Round())), is_late=True),
        ),
        shape=LogShape(roll_batches=(3, 1), transactions=False, idempotent=False),
        partitions=2,
    ),
    # The same, where an answer was lost, and the archive was read again with the undo in it.
    "records are deleted inside of what was merged, and the archive is read again after the undo": Schedule(
        seed=12162790,
        steps=(
            Append(seed=2661036727, batches=5),
            Append(seed=3658024147, batches=4, lags=True),
            Round(),
            Append(seed=162442398, batches=2),
            NewLeader(),
            Round(),
            CompactArchive(seed=2068267807),
            Undo(meanwhile=Meanwhile(call=10, steps=(DeleteRecords(share=0.6), Round()))),
            Append(seed=1074176323, batches=2),
            Round(faults=(Fault(error="OutcomeUnknown", first=2, after_commit_put=True),), is_late=True),
        ),
        shape=LogShape(roll_batches=(3, 2), transactions=False, idempotent=False),
        max_queue=3,
    ),
    # Of the model: the leader's retention took what the next leader still had, whose sidecar saw it go a second time.
    "a loss of the empty archive comes back with the next leader, and is lost again": Schedule(
        seed=12146418,
        steps=(
            Append(seed=1104457478, batches=2),
            Round(),
            Round(meanwhile=Meanwhile(call=0, steps=(Retention(broker=0, segments=2),), operation="scan")),
            Round(),
            NewLeader(fetches=False),
            Round(),
            Round(
                meanwhile=Meanwhile(
                    call=0, steps=(Append(seed=735765752), Retention(broker=1, segments=2)), operation="scan"
                )
            ),
        ),
        shape=LogShape(roll_batches=(1, 1, 2), transactions=False, idempotent=False),
        compacts=True,
    ),
    # Of the model: the sidecar of the next leader began the archive below what the one before it had reported as lost. Then an
    # unclean election had that one lead again, and record the gap.
    "a loss of the empty archive is recorded when another sidecar has begun it below": Schedule(
        seed=12142065,
        steps=(
            Append(seed=1962953010, batches=4),
            NewLeader(),
            Retention(broker=0),
            NewLeader(),
            Round(),
            Retention(broker=0, segments=2),
            Round(is_late=True),
            NewLeader(),
            Round(),
            UncleanLeader(),
        ),
    ),
    # Of the model: it saw no gap where the missing file is the last one before an empty active segment.
    "the last rolled file is lost on the next leader, and gaps are not recorded": Schedule(
        seed=12174868,
        steps=(
            Append(seed=2502206371, batches=2, partition=1),
            Append(seed=1774750303, batches=2, partition=1),
            Roll(broker=1, partition=1),
            Round(meanwhile=Meanwhile(call=13, steps=(LoseFile(broker=1, number=2, partition=1),))),
            NewLeader(partition=1),
        ),
        shape=LogShape(roll_batches=(2, 3), transactions=False, idempotent=False),
        partitions=2,
        retry_wait_s=5.0,
        records_lost=False,
    ),
    # The same, where the records are deleted before the new leader is elected.
    "records are deleted before a replica leads that is not cleaned": Schedule(
        seed=12215118,
        steps=(
            Append(seed=2781530817),
            Append(seed=3249692267, batches=3),
            Clean(broker=0, first=6, count=2),
            Round(),
            DeleteRecords(share=0.6),
            Append(seed=1637246833),
            NewLeader(),
        ),
        shape=LogShape(is_cleaned=True),
        retry_wait_s=60.0,
    ),
    # Of the product: each upload of an interrupted task cost the next tasks one failure, where its `.indexes` had other leader
    # epochs since (ObjectExists).
    "records are deleted after uploads that no commit names": Schedule(
        seed=12198158,
        steps=(
            Append(seed=1024561435, batches=2),
            Append(seed=3330321849, batches=4),
            Append(seed=273598657, batches=9),
            Round(),
            Compact(),
            Round(lies=2),
            DeleteRecords(share=1.0),
            Round(),
        ),
        shape=LogShape(roll_batches=(1, 2)),
        compacts=True,
        task_s=0.0,
    ),
    "retention takes segments after uploads that no commit names": Schedule(
        seed=12216686,
        steps=(
            Append(seed=205389716),
            Append(seed=49112672, batches=3),
            Round(is_late=True),
            Compact(),
            Round(),
            Append(seed=670563171, batches=5),
            NewLeader(fetches=False),
            Append(seed=4244195885, batches=4),
            Round(is_late=True),
            Compact(),
            Round(meanwhile=Meanwhile(call=17, steps=(Away(broker=1),))),
            Retention(broker=1),
        ),
        shape=LogShape(roll_batches=(3, 1)),
        compacts=True,
    ),
    # Of the product: a segment before a lost file was archived while a transaction of it was open. No snapshot shows the producers
    # behind the file, and it was taken for one that shows none.
    "a file is lost behind an open transaction, without a snapshot or a connection": Schedule(
        seed=12241793,
        steps=(
            Append(seed=2047398547, batches=4),
            Append(seed=2970430377, batches=6),
            LoseFile(broker=0, number=5),
            Round(),
        ),
        has_connection=False,
    ),
    # Of the product: a pin was released when the cleaner replaced its file, before the new file was pinned.
    "the cleaner replaces a pinned segment while another of its files waits for its name": Schedule(
        seed=101225,
        steps=(
            Append(seed=587736274, batches=3),
            Round(faults=(Fault(error="StoreUnavailable", operation="upload"),)),
            Clean(broker=0, first=0, count=9),
            Round(meanwhile=Meanwhile(call=0, steps=(Clean(broker=0, first=7, count=3, is_cut_off=True),))),
            Round(),
        ),
        shape=LogShape(roll_batches=(2, 3), transactions=False, idempotent=False, is_cleaned=True),
        partitions=3,
        workers=2,
    ),
    # The same, where retention takes the new file.
    "retention takes what the cleaner has put in the place of a pinned segment": Schedule(
        seed=22,
        steps=(
            Append(seed=1042032339, batches=4),
            Round(is_late=True),
            Append(seed=3014869100, batches=3),
            Round(faults=(Fault(error="StoreUnavailable", operation="upload"),)),
            Clean(broker=0, first=0, count=9),
            Round(meanwhile=Meanwhile(call=1, steps=(Clean(broker=0, first=5, is_cut_off=True),))),
            Retention(broker=0, segments=9),
            Round(),
        ),
        shape=LogShape(transactions=False, idempotent=False, is_cleaned=True),
        partitions=3,
        workers=2,
    ),
    # The same, where a listing gives the offsets of a file without a name to the segment before it, which is pinned.
    "the cleaner replaces the last pinned segment, and the new file has no name yet": Schedule(
        seed=52,
        steps=(
            Append(seed=4044670547, batches=4),
            Round(faults=(Fault(error="StoreUnavailable", operation="upload"),)),
            Round(
                meanwhile=Meanwhile(
                    call=0, steps=(Clean(broker=0, first=8, count=3, is_cut_off=True),), operation="scan"
                )
            ),
            Round(),
        ),
        shape=LogShape(roll_batches=(1, 1), transactions=False, idempotent=False, is_cleaned=True),
    ),
    # Of the model: while a person has to decide, no file is opened that could show that the listing does not hold.
    "a file is touched while its partition needs a person, and then the store fails": Schedule(
        seed=505379,
        steps=(
            Append(seed=2542080333, batches=4),
            Round(faults=(Fault(error="Crash", first=6, after=True),)),
            Retention(broker=0, segments=2),
            Append(seed=3707567944, batches=4),
            Round(),
            Touch(broker=0, number=5),
            Round(),
            Round(faults=(Fault(error="OutcomeUnknown", operation="list", after=True),)),
        ),
        shape=LogShape(transactions=False, idempotent=False),
        has_topic_id=False,
    ),
    # Of the model: what waits for its compaction is not pinned, so the pins of what it replaces stay.
    "a replica moves while its pinned segments wait to be compacted": Schedule(
        seed=2200866,
        steps=(
            Append(seed=1964718758, batches=3),
            Round(),
            Compact(),
            Round(),
            Move(broker=0, number=1),
        ),
        shape=LogShape(roll_batches=(1, 1), transactions=False, idempotent=False),
        compacts=True,
        max_queue=1,
    ),
    "the cleaner replaces pinned segments that wait to be compacted": Schedule(
        seed=2000103,
        steps=(
            Append(seed=3262215513),
            Append(seed=1811614077, batches=2),
            Round(faults=(Fault(error="ObjectMissing", first=2),), is_late=True),
            Round(meanwhile=Meanwhile(call=2, steps=(Reload(broker=0, uploads_ahead=3, task_s=0.0, compacts=True),))),
            Clean(broker=0, first=0, count=3, is_cut_off=True),
        ),
        shape=LogShape(roll_batches=(2, 2), transactions=False, idempotent=False, is_cleaned=True),
    ),
    # Of the model: a pinned file was touched, and is pinned as it is now.
    "a pinned file that the cleaner wrote is touched": Schedule(
        seed=2501108,
        steps=(
            NewLeader(),
            Append(seed=145103007, batches=5),
            Round(faults=(Fault(error="StoreUnavailable", operation="upload", first=2),)),
            Clean(broker=1, first=0, count=9),
            Round(faults=(Fault(error="StoreUnavailable", operation="upload"),)),
            Touch(broker=1),
            Round(),
            Round(faults=(Fault(error="StoreUnavailable", operation="upload"),)),
        ),
        shape=LogShape(roll_batches=(3, 2, 3), transactions=False, idempotent=False, is_cleaned=True),
    ),
    # Of the model: DeleteRecords has passed a file that is lost from between others while it is pinned.
    "a pinned file below the log start is lost from between others": Schedule(
        seed=5267,
        steps=(
            Append(seed=2370030653, batches=7),
            DeleteRecords(share=0.6),
            Round(meanwhile=Meanwhile(call=19, steps=(LoseFile(broker=0, number=6),))),
        ),
        shape=LogShape(roll_batches=(1, 3), transactions=False),
        task_s=0.0,
    ),
    # Of the model: two leaders see the same go, and nothing is archived that could tell one of the other.
    "two leaders report one loss, before there is a commit": Schedule(
        seed=30006296,
        steps=(
            Round(),
            Round(
                meanwhile=Meanwhile(call=0, steps=(Append(seed=1, batches=2), Retention(broker=0)), operation="scan")
            ),
            Round(moves=1, checks=False),
            NewLeader(fetches=False),
            Round(),
            Round(meanwhile=Meanwhile(call=0, steps=(Append(seed=2), Retention(broker=1)), operation="scan")),
            Round(broker=0),
        ),
        shape=LogShape(roll_batches=(2, 2), transactions=False, idempotent=False),
    ),
    # Of the product: what was seen to go of a log without a topic id was forgotten when it came to another log dir.
    "a log without a topic id loses its beginning, and moves": Schedule(
        seed=30006996,
        steps=(
            Append(seed=2578718506, batches=4),
            Round(faults=(Fault(error="StoreUnavailable", operation="upload"),)),
            Retention(broker=0, segments=2),
            Round(),
            Wait(milliseconds=10800000),
            Round(meanwhile=Meanwhile(call=3, steps=(Move(broker=0, number=1),))),
        ),
        shape=LogShape(roll_batches=(3, 3, 2), transactions=False, idempotent=False),
        has_topic_id=False,
        retry_wait_s=60.0,
    ),
    # Of the product: a file that was lost from between others was taken for another log, and retention never ended that.
    "a lost file makes another batch the last one of an archived segment": Schedule(
        seed=40001194,
        steps=(
            Append(seed=1981447793),
            Append(seed=2330192616, batches=2),
            Append(seed=2587342739),
            Append(seed=555192887, batches=3),
            Roll(broker=0),
            Append(seed=3891422111, batches=4),
            Retention(broker=1),
            Append(seed=4095145292, batches=4),
            Append(seed=2887914049, batches=3),
            Round(),
            LoseFile(broker=1),
            NewLeader(fetches=False),
            Append(seed=952095021, batches=4),
            Round(meanwhile=Meanwhile(call=6, steps=(LoseFile(broker=1, number=6),))),
            Round(),
            Round(meanwhile=Meanwhile(call=0, steps=(Retention(broker=1, segments=9),), operation="scan")),
        ),
        retry_wait_s=5.0,
    ),
    # Of the model: a file that was lost was archived before, and joined with others, but the archive was hidden meanwhile.
    "a file is lost that a compaction has joined with others": Schedule(
        seed=50009678,
        steps=(
            Append(seed=1355167779, batches=8),
            Round(
                meanwhile=Meanwhile(
                    call=1, steps=(NewLeader(), Append(seed=1782449742), Round()), operation="read segment"
                )
            ),
            CompactArchive(seed=3715094783),
            CompactArchive(seed=3268631965, meanwhile=Meanwhile(call=8, steps=(NewLeader(), Round()))),
            Append(seed=3892097555),
            Round(faults=(Fault(error="Crash", after=True),), is_late=True),
            Hide(steps=(Round(), Round())),
            Round(meanwhile=Meanwhile(call=0, steps=(LoseFile(broker=0, number=5),))),
        ),
        shape=LogShape(roll_batches=(1, 1), transactions=False, idempotent=False),
        retry_wait_s=5.0,
    ),
    # Of the model: the records of a lost file were deleted on purpose, and the leader's epochs below are not known any more.
    "a file is lost whose records were deleted": Schedule(
        seed=50044483,
        steps=(
            UncleanLeader(),
            Append(seed=4133639891, batches=5),
            NewLeader(),
            Round(),
            DeleteRecords(share=1.0),
            NewLeader(),
            NewLeader(),
            LoseFile(broker=0, number=8),
        ),
        shape=LogShape(roll_batches=(1, 1), transactions=False, idempotent=False),
        max_queue=2,
        records_lost=False,
    ),
    # Of the model: an added marker is of a transaction that the leader's cleaner had taken when this replica fetched the log.
    "a marker is added for a transaction that was cleaned before it was fetched": Schedule(
        seed=55001977,
        steps=(
            Append(seed=3519159253, batches=5),
            Append(seed=3197758157, batches=6),
            Append(seed=1835183894, batches=5),
            Append(seed=704596925, batches=5),
            NewLeader(),
            Append(seed=328954496, batches=2),
            Append(seed=1948981352),
            Append(seed=3287490937, batches=2),
            NewLeader(),
            Append(seed=2959279924, batches=4),
            Round(),
            Append(seed=3805720298, batches=2),
            Clean(broker=0, first=0, count=9),
            Clean(broker=0, first=0, count=9),
            Move(broker=0, number=1),
        ),
        shape=LogShape(is_cleaned=True),
    ),
    # Of the model: the file of a pin got another time while its partition was stopped, so that no plan pinned it again.
    "a pinned file is touched while its partition is stopped": Schedule(
        seed=55001476,
        steps=(
            Append(seed=3783081126, batches=5),
            Append(seed=3795455730, batches=5),
            Retention(broker=1, segments=9),
            Round(meanwhile=Meanwhile(call=3, steps=(LoseFile(broker=0, number=3),))),
            CompactArchive(seed=1473468126, meanwhile=Meanwhile(call=1, steps=(NewLeader(), Round()))),
            Round(meanwhile=Meanwhile(call=0, steps=(NewLeader(fetches=False),), operation="read segment")),
            Round(),
            Touch(broker=0, number=7),
            Round(),
        ),
        shape=LogShape(roll_batches=(1, 2), transactions=False, idempotent=False),
        max_queue=1,
    ),
    # Of the model: a check that was cut off had not said yet that its pins are archived, and the archive ends with a gap.
    "the check that would report a loss is cut off": Schedule(
        seed=56009063,
        steps=(
            Append(seed=182974910, batches=3),
            Round(faults=(Fault(error="StoreUnavailable", operation="upload"),)),
            Retention(broker=0, segments=2),
            Round(faults=(Fault(error="StoreUnavailable"),)),
            Round(moves=3),
        ),
        shape=LogShape(roll_batches=(2, 2), transactions=False, idempotent=False),
        has_topic_id=False,
        records_lost=False,
        has_connection=False,
    ),
    # Of the model: an undo makes a segment the newest again that was archived before the records were deleted.
    "an undo after a deletion archives nothing": Schedule(
        seed=57004406,
        steps=(
            Append(seed=3049810003, batches=3),
            Append(seed=3174891507, batches=4),
            Round(),
            Compact(broker=0, sweeps=True),
            Round(),
            CompactArchive(seed=2309015701),
            DeleteRecords(share=0.3),
            Round(),
            Undo(),
        ),
        shape=LogShape(roll_batches=(2, 2), transactions=False),
        compacts=True,
    ),
}
