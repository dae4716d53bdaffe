"""Which pins stay at a check, why the others go, and what of deleted segments is decided."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sidecar.archive.coverage import Hole
from sidecar.archive.state import empty_state
from sidecar.model import FileIdentity, PartitionFiles, SegmentFiles, TopicPartition
from sidecar.partition.facts import Change, PartitionFacts
from sidecar.partition.pins import (
    NO_LOSS,
    OTHER_EPOCH,
    OTHER_LOG,
    RECREATED,
    decided_end_offset,
    is_covered,
    reaches_above,
    replacement,
    why_released,
)
from sidecar.partition.wait_reason import StrayDirectory
from tests.archive.builders import LINEAGE

NAME, LOG_DIR = TopicPartition("t", 0), Path("/d")
FACTS = PartitionFacts(NAME, "id", True, 1, 30, 0, transactions_decided=True, cluster_start_offset=0)


def _log(base_offset: int, inode: int = 0) -> FileIdentity:
    return FileIdentity(LOG_DIR / "t-0", f"{base_offset:020d}.log", inode or base_offset + 1, 100, 0)


def _segment(base_offset: int, inode: int = 0) -> SegmentFiles:
    return SegmentFiles(NAME, LOG_DIR, base_offset, base_offset + 10, _log(base_offset, inode), None, None, None, None)


def _files(*segments: SegmentFiles, active_base_offset: int = 30) -> PartitionFiles:
    directory, active = LOG_DIR / "t-0", _log(active_base_offset)
    return PartitionFiles(NAME, LOG_DIR, directory, "id", segments, active_base_offset, (), False, active_log=active)


WHOLE, LATER = _files(*map(_segment, (0, 10, 20))), _files(_segment(20))
REPLACED = _files(_segment(0), _segment(10, inode=99), _segment(20))
MERGED = _files(replace(_segment(0, inode=99), end_offset=20), _segment(20))
UNNAMED = replace(_files(replace(_segment(0), end_offset=20), _segment(20)), unstable=True)
CHANGED = _files(_segment(0), replace(_segment(10), log=replace(_log(10), size_bytes=50)), _segment(20))


@pytest.mark.parametrize(
    ("files", "given", "why"),
    [
        (WHOLE, {}, None),
        (LATER, {}, None),
        (REPLACED, {}, None),
        (MERGED, {}, None),
        (UNNAMED, {}, None),
        (replace(_files(_segment(0), active_base_offset=10), unstable=True), {}, NO_LOSS),
        (CHANGED, {}, NO_LOSS),
        (_files(_segment(0), _segment(20)), {}, NO_LOSS),
        (WHOLE, {"leads": False}, NO_LOSS),
        (LATER, {"leads": False}, NO_LOSS),
        (WHOLE, {"change": Change.TOPIC}, RECREATED),
        (_files(active_base_offset=0), {"change": Change.TOPIC, "leads": False}, RECREATED),
        (WHOLE, {"facts": replace(FACTS, reason=StrayDirectory("a", "b")), "leads": False}, RECREATED),
        (WHOLE, {"change": Change.LOG}, NO_LOSS),
        (LATER, {"change": Change.LOG}, OTHER_LOG),
        (_files(active_base_offset=0), {"change": Change.LOG}, NO_LOSS),
        (_files(active_base_offset=0), {"change": Change.LOG, "facts": replace(FACTS, stable_end_offset=5)}, OTHER_LOG),
        (_files(_segment(10)), {"change": Change.LOG, "facts": replace(FACTS, stable_end_offset=20)}, NO_LOSS),
        (
            _files(active_base_offset=20),
            {"change": Change.LOG, "facts": replace(FACTS, stable_end_offset=0)},
            OTHER_LOG,
        ),
        (
            _files(_segment(0), active_base_offset=20),
            {"change": Change.LOG, "facts": replace(FACTS, stable_end_offset=0)},
            NO_LOSS,
        ),
        (LATER, {"kept_end_offset": 20}, None),
        (LATER, {"kept_end_offset": 19}, OTHER_EPOCH),
        (WHOLE, {"kept_end_offset": 19}, NO_LOSS),
        (_files(active_base_offset=10), {"tail": _log(10)}, None),
        (_files(active_base_offset=10), {}, NO_LOSS),
        (replace(_files(active_base_offset=10), active_log=_log(10, inode=99)), {"tail": _log(10)}, NO_LOSS),
        (replace(_files(active_base_offset=10), active_log=None), {"tail": _log(10)}, None),
        (replace(_files(active_base_offset=5), active_log=None), {"tail": _log(10)}, NO_LOSS),
    ],
)
def test_the_pin_of_a_segment_stays_or_goes(files: PartitionFiles, given: dict[str, Any], why: str | None) -> None:
    values = {"facts": FACTS, "change": Change.NONE, "leads": True} | given
    assert why_released(_segment(10), files, **values) == why


GONE_BETWEEN = _files(replace(_segment(0), end_offset=20), _segment(20))
CUT_AND_APPENDED = _files(replace(_segment(0), log=replace(_log(0), size_bytes=50), end_offset=20), _segment(20))


@pytest.mark.parametrize(
    ("files", "given", "is_reported"),
    [
        (GONE_BETWEEN, {}, True),
        (_files(replace(_segment(0), end_offset=30)), {}, True),
        (GONE_BETWEEN, {"kept_end_offset": 20}, True),
        (GONE_BETWEEN, {"before": ()}, False),
        (GONE_BETWEEN, {"before": (_segment(20),)}, False),
        (GONE_BETWEEN, {"before": (_segment(0, inode=99), _segment(10))}, False),
        (GONE_BETWEEN, {"leads": False}, False),
        (GONE_BETWEEN, {"kept_end_offset": 19}, False),
        (UNNAMED, {}, False),
        (MERGED, {}, False),
        (CUT_AND_APPENDED, {}, False),
        (_files(_segment(0), active_base_offset=10), {}, False),
        (LATER, {}, False),
        (REPLACED, {}, False),
    ],
)
def test_a_file_that_neither_retention_nor_a_cleaner_nor_a_truncation_took_is_reported(
    files: PartitionFiles, given: dict[str, Any], is_reported: bool
) -> None:
    values = {"facts": FACTS, "change": Change.NONE, "leads": True, "before": WHOLE.segments} | given
    why = why_released(_segment(10), files, **values)
    assert (why not in {None, NO_LOSS}) is is_reported
    assert not is_reported or "its offsets from 10 to 19 were not archived" in str(why)


@pytest.mark.parametrize(
    ("files", "inode"),
    [
        *((found, None) for found in (WHOLE, LATER, CHANGED, UNNAMED, _files(_segment(0)))),
        *((found, 99) for found in (REPLACED, MERGED)),
    ],
)
def test_what_the_cleaner_has_put_in_the_place_of_a_segment(files: PartitionFiles, inode: int | None) -> None:
    found = replacement(_segment(10), files)
    assert (None if found is None else found.inode) == inode


def test_a_copy_in_another_log_dir_replaces_a_file_with_the_same_inode() -> None:
    copied = replace(_segment(10), log=replace(_log(10), directory=Path("/e/t-0")))
    assert replacement(_segment(10), _files(copied, _segment(20))) == copied.log


@pytest.mark.parametrize(("archived_to", "is_above"), [(None, True), (0, True), (19, True), (20, False)])
def test_what_reaches_above_the_archive(archived_to: int | None, is_above: bool) -> None:
    assert reaches_above(_segment(10), archived_to) is is_above


@pytest.mark.parametrize(
    ("start_offset", "end_offset", "lost", "is_whole"),
    [
        (0, 30, [], True),
        (10, 20, [(0, 10), (20, 30)], True),
        (None, None, [], False),
        (11, 30, [], False),
        (0, 19, [], False),
        (0, 30, [(0, 11)], False),
        (0, 30, [(19, 20)], False),
        (0, 30, [(0, 30)], False),
    ],
)
def test_what_the_archive_covers_has_no_offset_that_is_recorded_as_lost(
    start_offset: int | None, end_offset: int | None, lost: list[tuple[int, int]], is_whole: bool
) -> None:
    holes = tuple(Hole(*span, "lost") for span in lost)
    archived = replace(empty_state(LINEAGE), end_offset=end_offset, holes=holes)
    assert is_covered(_segment(10), archived, start_offset) is is_whole


@pytest.mark.parametrize(
    ("stable", "start", "is_decided", "expected"),
    [
        (30, 0, True, 30),
        (30, 20, True, 30),
        (20, 20, True, 7),
        (25, 25, True, 7),
        (20, 0, True, 7),
        (20, 20, False, 20),
    ],
    ids=[
        "above all",
        "above the log start",
        "raised to it",
        "raised inside",
        "deleted since the answer",
        "no leader asked",
    ],
)
def test_a_stable_offset_at_the_log_start_decides_nothing(
    stable: int, start: int, is_decided: bool, expected: int
) -> None:
    facts = replace(FACTS, stable_end_offset=stable, cluster_start_offset=start, transactions_decided=is_decided)
    assert decided_end_offset(LATER, facts, 7) == expected
