"""A replica that was fetched after its leader's cleaner had been there knows an epoch from the first batch that was left of it.

Source: UnifiedLog.append assigns a follower's epochs from the batches that it fetches, Partition.makeLeader a leader's.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidecar.archive.continuity import ContinuityCheck, Probe, Verdict, probes
from sidecar.model import LeaderEpoch
from tests.archive.test_continuity import ARCHIVED, C, local
from tests.archive.test_continuity import judged as judged_by_batches

COMPACTED = ({"is_compacted": True}, {"may_be_cleaned": True})


def judged(changes: dict[str, bool], *epochs: tuple[int, int]) -> ContinuityCheck:
    """The verdict on a log whose last batch is the archived one, and whose first one is not."""
    fetched_late = local(leader_epochs=tuple(LeaderEpoch(*entry) for entry in epochs))
    fetched_late = replace(fetched_late, **changes)
    (last, first) = probes(ARCHIVED, fetched_late)
    found: dict[Probe, int | None] = {last: C.last_batch_crc, first: first.crc ^ 1}
    return judged_by_batches(ARCHIVED, fetched_late, found)


@pytest.mark.parametrize("changes", COMPACTED)
@pytest.mark.parametrize("epochs", [((0, 0), (2, 230)), ((0, 0), (1, 120), (2, 200)), ((0, 0), (2, 350))])
def test_an_epoch_begins_later_in_a_replica_where_a_cleaner_took_its_first_batches(
    changes: dict[str, bool], epochs: tuple[tuple[int, int], ...]
) -> None:
    assert judged(changes, *epochs).verdict is Verdict.PROVEN


@pytest.mark.parametrize("changes", COMPACTED)
@pytest.mark.parametrize(
    ("epochs", "message"),
    [
        # A former leader was elected again, with what it had written under epoch 0; leader 2 it never followed.
        (((0, 0), (3, 350)), "offset 299 has leader epoch 0"),
        # A follower of leader 2 that had not fetched all of it was elected.
        (((0, 0), (2, 150), (3, 250)), "offset 299 has leader epoch 3"),
        (((3, 0),), "offset 299 has leader epoch 3"),
        (((0, 0), (1, 350)), "latest leader epoch is 1"),
    ],
)
def test_unclean_elections_are_contradictions_in_compacted_topics_too(
    changes: dict[str, bool], epochs: tuple[tuple[int, int], ...], message: str
) -> None:
    found = judged(changes, *epochs)
    assert found.verdict is Verdict.CONTRADICTED
    assert message in found.reason


def test_without_a_cleaner_every_boundary_counts() -> None:
    assert judged({}, (0, 0), (1, 120), (2, 200)).verdict is Verdict.CONTRADICTED
    assert judged({}, (0, 0), (2, 350)).verdict is Verdict.CONTRADICTED


@pytest.mark.parametrize("epochs", [((2, 250),), ((2, 299), (3, 400)), ((3, 350),)])
def test_where_records_were_deleted_another_first_batch_contradicts_nothing(
    epochs: tuple[tuple[int, int], ...],
) -> None:
    assert judged({"is_compacted": True}, *epochs).verdict is Verdict.PROVEN
    assert judged({}, *epochs).verdict is Verdict.CONTRADICTED
