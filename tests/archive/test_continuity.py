"""Does a local log continue the archived one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from sidecar.archive.actions import Add, Lost, Remove
from sidecar.archive.continuity import (
    ContinuityCheck,
    LocalBatch,
    LocalLog,
    Probe,
    Verdict,
    epoch_at,
    is_archived_log,
    judge_continuity,
    probes,
)
from sidecar.archive.state import PartitionState, empty_state
from sidecar.model import ArchivedSegment, LeaderEpoch, RawBatches
from tests.archive.builders import LINEAGE, a_compacted, a_segment, after

EPOCHS = (LeaderEpoch(0, 0), LeaderEpoch(2, 150))
A = a_segment(0)
B = a_segment(100, leader_epochs=(LeaderEpoch(0, 100), LeaderEpoch(2, 150)), highest_batch_leader_epoch=2)
C = a_segment(200, leader_epochs=(LeaderEpoch(2, 200),), highest_batch_leader_epoch=2)
ARCHIVED = after(empty_state(LINEAGE), [Add(A)], [Add(B)], [Add(C)])


def local(start_offset: int = 0, end_offset: int = 500, **changes: object) -> LocalLog:
    """A local log with the archive's own epochs."""
    return replace(LocalLog(start_offset, end_offset, EPOCHS), **changes)  # type: ignore[arg-type]


def judged(
    archived: PartitionState, log: LocalLog, crcs: Mapping[Probe, int | None], leader_epoch: int = 2
) -> ContinuityCheck:
    """The verdict where the local batches have these checksums, and this leader epoch. None for no batch."""
    found: dict[Probe, LocalBatch | None] = {}
    for probe, crc in crcs.items():
        offset = probe.end_offset - 1 if probe.last else probe.base_offset
        found[probe] = None if crc is None else LocalBatch(offset, offset, crc, leader_epoch)
    return judge_continuity(archived, log, found)


def test_the_newest_segment_inside_is_probed() -> None:
    assert {(probe.base_offset, probe.last, probe.crc) for probe in probes(ARCHIVED, local())} == {
        (200, True, C.last_batch_crc),
        (200, False, C.first_batch_crc),
    }
    assert {probe.base_offset for probe in probes(ARCHIVED, local(end_offset=250))} == {100}
    assert [(p.base_offset, p.last) for p in probes(ARCHIVED, local(start_offset=250))] == [(200, True)]
    assert [(p.base_offset, p.last) for p in probes(ARCHIVED, local(end_offset=50))] == [(0, False)]
    assert probes(ARCHIVED, local(start_offset=300)) == ()
    # What ends with the log ends inside of it; what begins there does not.
    assert probes(ARCHIVED, local(end_offset=300)) == probes(ARCHIVED, local())
    assert [(p.base_offset, p.last) for p in probes(ARCHIVED, local(250, 300))] == [(200, True)]
    assert probes(ARCHIVED, local(end_offset=0)) == ()


def test_absent_checksums_are_not_probed() -> None:
    bare = after(empty_state(LINEAGE), [Add(a_segment(0, first_batch_crc=None, last_batch_crc=None))])
    assert probes(bare, local()) == ()


def test_a_newest_segment_that_a_cleaner_emptied_hides_no_proof() -> None:
    empty = a_segment(300, batch_count=0, first_batch_crc=None, last_batch_crc=None, highest_batch_leader_epoch=2)
    state = after(ARCHIVED, [Add(replace(empty, leader_epochs=(LeaderEpoch(2, 300),)))])
    cleaned = local(may_be_cleaned=True)
    found = probes(state, cleaned)
    assert found == probes(ARCHIVED, cleaned)
    assert judged(state, cleaned, {probe: probe.crc for probe in found}).verdict is Verdict.PROVEN


def test_compacted_segments_are_known_by_the_raw_batches_they_were_made_of() -> None:
    merged = replace(
        a_compacted(0, 300),
        leader_epochs=EPOCHS,
        compacted_from=RawBatches(200, 300, 0xA, 0xB),
        highest_batch_leader_epoch=2,
    )
    state = after(
        ARCHIVED, [*(Remove(s.segment_id, s.base_offset, s.end_offset, "replaced") for s in (A, B, C)), Add(merged)]
    )
    assert merged.last_batch_crc is not None
    own = Probe(0, 300, True, merged.last_batch_crc, is_raw=False)
    assert probes(state, local()) == (own, Probe(200, 300, True, 0xB), Probe(200, 300, False, 0xA))
    assert probes(state, local(start_offset=250)) == (own, Probe(200, 300, True, 0xB))
    assert judged(state, local(), {Probe(200, 300, True, 0xB): 0xB}).verdict is Verdict.PROVEN
    assert judged(state, local(), {Probe(200, 300, True, 0xB): 0xC}).verdict is Verdict.CONTRADICTED
    assert judged(state, local(), {Probe(200, 300, True, 0xB): 0xC, own: own.crc}).verdict is Verdict.PROVEN


def test_the_own_batch_of_a_compacted_segment_proves_a_restored_log_and_contradicts_none() -> None:
    first = replace(a_compacted(0, 200), leader_epochs=EPOCHS, highest_batch_leader_epoch=2)
    newest = replace(a_compacted(200, 300), leader_epochs=(LeaderEpoch(2, 200),), highest_batch_leader_epoch=2)
    removed = [Remove(s.segment_id, s.base_offset, s.end_offset, "replaced") for s in (A, B, C)]
    state = after(ARCHIVED, [*removed, Add(first), Add(newest)])
    assert [(probe.base_offset, probe.is_raw) for probe in probes(state, local())] == [(200, False)]
    assert probes(state, local(end_offset=250)) == ()
    assert probes(state, local(start_offset=300)) == ()
    (probe,) = probes(state, local())
    assert judged(state, local(), {probe: probe.crc}).verdict is Verdict.PROVEN
    assert judged(state, local(), {probe: probe.crc ^ 1}).verdict is Verdict.PLAUSIBLE


def test_the_own_batch_of_a_compacted_segment_counts_only_at_the_archives_end() -> None:
    """A log may have been restored up to there, and go on otherwise: a cleaner explains the other batches as well."""
    state = after(ARCHIVED, [Remove(B.segment_id, 100, 200, "replaced"), Add(a_compacted(100, 200))])
    log = local(may_be_cleaned=True)
    last, first = probes(state, log)
    assert (last.end_offset, last.is_raw, first.is_raw) == (300, True, True)
    assert judged(state, log, {last: last.crc ^ 1, first: first.crc}).verdict is Verdict.PROVEN
    assert judged(state, log, {last: last.crc ^ 1, first: first.crc ^ 1}).verdict is Verdict.PLAUSIBLE


def test_a_last_batch_that_compaction_left_as_it_was_does_not_outweigh_the_first() -> None:
    """Both must be the archived ones where nothing explains another batch: a producer may have sent the last one again."""
    kept = replace(a_compacted(200, 300), leader_epochs=(LeaderEpoch(2, 200),), highest_batch_leader_epoch=2)
    assert kept.last_batch_crc is not None
    kept = replace(kept, compacted_from=RawBatches(200, 300, 0xA, kept.last_batch_crc))
    state = after(ARCHIVED, [Remove(C.segment_id, 200, 300, "replaced"), Add(kept)])
    last, first = probes(state, local())
    assert (last.crc, last.is_raw) == (kept.last_batch_crc, True)
    assert judged(state, local(), {last: last.crc, first: first.crc ^ 1}).verdict is Verdict.CONTRADICTED
    assert judged(state, local(), {last: last.crc, first: first.crc}).verdict is Verdict.PROVEN


def test_an_archived_batch_found_locally_proves_it() -> None:
    (last, first) = probes(ARCHIVED, local())
    assert judged(ARCHIVED, local(), {last: last.crc, first: None}).verdict is Verdict.PROVEN
    assert judged(ARCHIVED, local(), {last: None, first: first.crc}).verdict is Verdict.PROVEN


def test_a_log_truncated_inside_the_newest_segment_is_contradicted_though_it_begins_alike() -> None:
    (last, first) = probes(ARCHIVED, local())
    found: dict[Probe, int | None] = {last: last.crc ^ 1, first: first.crc}
    assert judged(ARCHIVED, local(), found).verdict is Verdict.CONTRADICTED
    assert judged(ARCHIVED, local(may_be_cleaned=True), found).verdict is Verdict.PROVEN


def test_a_log_truncated_below_the_archive_is_contradicted_before_it_rolls() -> None:
    """The active segment is not compared. Its leader epochs are known."""
    for epoch, verdict in ((LeaderEpoch(3, 260), Verdict.CONTRADICTED), (LeaderEpoch(3, 300), Verdict.PROVEN)):
        active = local(end_offset=250, leader_epochs=(*EPOCHS, epoch))
        found = judged(ARCHIVED, active, {probe: probe.crc for probe in probes(ARCHIVED, active)})
        assert found.verdict is verdict, found.reason


def test_another_batch_in_its_place_contradicts_unless_a_cleaner_may_have_written_it() -> None:
    found: dict[Probe, int | None] = {probe: probe.crc ^ 1 for probe in probes(ARCHIVED, local())}
    verdict = judged(ARCHIVED, local(), found)
    assert verdict.verdict is Verdict.CONTRADICTED
    assert "CRC" in verdict.reason
    assert judged(ARCHIVED, local(may_be_cleaned=True), found).verdict is Verdict.PLAUSIBLE


@pytest.mark.parametrize("epochs", [EPOCHS, (), (LeaderEpoch(2, 250),), (LeaderEpoch(3, 450),)])
def test_a_cleaner_explains_a_batch_that_a_leader_of_the_archived_log_wrote(
    epochs: tuple[LeaderEpoch, ...],
) -> None:
    """The checkpoint begins at the log start, which DeleteRecords moves: the batch in the file says its epoch itself."""
    found: dict[Probe, int | None] = {probe: probe.crc ^ 1 for probe in probes(ARCHIVED, local())}
    known, cleaned = local(is_compacted=True, leader_epochs=epochs), local(may_be_cleaned=True, leader_epochs=epochs)
    assert judged(ARCHIVED, known, found).verdict is judged(ARCHIVED, cleaned, found).verdict is Verdict.PLAUSIBLE
    # Of a leader below, of one that wrote nothing archived, of a later one; old formats have none.
    for log, others in ((known, (-1, 0, 1, 3)), (cleaned, (0, 1, 3))):
        for verdict in (judged(ARCHIVED, log, found, leader_epoch) for leader_epoch in others):
            assert verdict.verdict is Verdict.CONTRADICTED
            assert "CRC" in verdict.reason
    assert judged(ARCHIVED, cleaned, found, -1).verdict is Verdict.PLAUSIBLE
    bare = after(empty_state(LINEAGE), [Add(replace(A, leader_epochs=()))])
    found = {probe: probe.crc ^ 1 for probe in probes(bare, known)}
    assert judged(bare, known, found).verdict is Verdict.CONTRADICTED


def test_of_a_compacted_log_the_newest_batch_decides() -> None:
    """Below it the log is the same (KIP-101). The archived one was read after its cleaner had taken what epoch 0 began with."""
    state = after(
        empty_state(LINEAGE), [Add(replace(A, leader_epochs=(LeaderEpoch(2, 0),), highest_batch_leader_epoch=2))]
    )
    (last, first) = probes(state, local())
    found = {last: LocalBatch(99, 99, last.crc ^ 1, 2), first: LocalBatch(0, 0, first.crc ^ 1, 0)}
    cut = local(leader_epochs=(LeaderEpoch(2, 150),))
    for cleaned in (replace(cut, is_compacted=True), replace(cut, may_be_cleaned=True)):
        assert judge_continuity(state, cleaned, found).verdict is Verdict.PLAUSIBLE
    assert judge_continuity(state, cut, found).verdict is Verdict.CONTRADICTED


def test_without_a_common_batch_only_a_known_directory_convinces() -> None:
    beyond = local(start_offset=300, leader_epochs=(LeaderEpoch(2, 300),))
    assert judged(ARCHIVED, beyond, {}).verdict is Verdict.PLAUSIBLE
    assert judged(ARCHIVED, replace(beyond, known_directory=True), {}).verdict is Verdict.PROVEN


def test_a_log_that_differed_is_no_other_one_because_all_that_differed_was_deleted() -> None:
    other = local(has_differed=True, known_directory=True)
    beyond = replace(other, start_offset=300, leader_epochs=(LeaderEpoch(2, 300),))
    assert judged(ARCHIVED, beyond, {}).verdict is Verdict.CONTRADICTED
    lost = after(ARCHIVED, [Lost(300, 400, "no longer there")])
    assert judged(lost, replace(beyond, start_offset=400), {}).verdict is Verdict.PROVEN
    (last, _) = probes(ARCHIVED, other)
    assert judged(ARCHIVED, other, {last: last.crc}).verdict is Verdict.PROVEN
    # What is left of the archived offsets decides again: the check may have lacked the topic's cleanup.policy.
    assert judged(ARCHIVED, replace(other, is_compacted=True), {last: last.crc ^ 1}).verdict is Verdict.PROVEN


@pytest.mark.parametrize(
    ("epochs", "message"),
    [
        ((LeaderEpoch(0, 0),), "latest leader epoch is 0"),
        ((LeaderEpoch(0, 0), LeaderEpoch(2, 260)), "offset 200 has leader epoch 0"),
        ((LeaderEpoch(0, 0), LeaderEpoch(1, 120), LeaderEpoch(2, 200)), "offset 199 has leader epoch 1"),
        ((LeaderEpoch(3, 0),), "leader epoch 3 in the local log and 2"),
    ],
)
def test_other_leader_epochs_contradict_even_where_a_checksum_fits(
    epochs: tuple[LeaderEpoch, ...], message: str
) -> None:
    found = {probe: probe.crc for probe in probes(ARCHIVED, local())}
    verdict = judged(ARCHIVED, local(leader_epochs=epochs, known_directory=True), found)
    assert verdict.verdict is Verdict.CONTRADICTED
    assert message in verdict.reason


def test_later_epochs_and_a_trimmed_epoch_file_are_no_contradiction() -> None:
    trimmed = local(start_offset=250, leader_epochs=(LeaderEpoch(2, 250), LeaderEpoch(7, 300)))
    (last,) = probes(ARCHIVED, trimmed)
    assert judged(ARCHIVED, trimmed, {last: last.crc}).verdict is Verdict.PROVEN


def test_legacy_logs_without_epochs_are_judged_by_their_batches() -> None:
    legacy = local(leader_epochs=())
    (last, first) = probes(ARCHIVED, legacy)
    assert judged(ARCHIVED, legacy, {last: last.crc, first: first.crc}).verdict is Verdict.PROVEN


def test_an_empty_archive_is_continued_by_anything() -> None:
    assert judged(empty_state(LINEAGE), local(), {}).verdict is Verdict.PROVEN


def test_the_epoch_of_an_offset() -> None:
    assert [epoch_at(EPOCHS, offset) for offset in (0, 149, 150, 10**9)] == [0, 0, 2, 2]
    assert epoch_at((LeaderEpoch(4, 10),), 9) is None


@pytest.mark.parametrize(
    ("epochs", "is_archived"),
    [
        (EPOCHS, True),
        ((LeaderEpoch(2, 250),), True),
        ((LeaderEpoch(2, 300),), True),
        ((*EPOCHS, LeaderEpoch(3, 300)), True),
        ((*EPOCHS, LeaderEpoch(3, 299)), False),
        ((LeaderEpoch(0, 0), LeaderEpoch(3, 300)), False),
        ((LeaderEpoch(3, 300),), False),
        ((), False),
    ],
)
def test_the_leader_epoch_of_the_newest_archived_batch_shows_whether_a_log_has_what_is_archived(
    epochs: tuple[LeaderEpoch, ...], is_archived: bool
) -> None:
    assert is_archived_log(ARCHIVED, epochs) is is_archived


@pytest.mark.parametrize("segments", [(), (replace(C, leader_epochs=()),)], ids=["no segment", "no leader epoch"])
def test_an_archive_without_a_leader_epoch_proves_nothing_of_a_log(segments: tuple[ArchivedSegment, ...]) -> None:
    assert not is_archived_log(replace(ARCHIVED, segments=segments), EPOCHS)
