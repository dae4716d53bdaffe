"""Which files are pinned where not all can be."""

from __future__ import annotations

from pathlib import Path

from sidecar.model import FileIdentity
from sidecar.scheduler.admission import pin_order

MS = 1_000_000


def logs(name: str, *written_ms: int) -> list[FileIdentity]:
    """Segments of one partition by when they were last written."""
    return [FileIdentity(Path(name), f"{n:020d}.log", n, 100, at_ms * MS) for n, at_ms in enumerate(written_ms)]


def pinned(limit: int, *partitions: tuple[int | None, list[FileIdentity]]) -> list[str]:
    ordered = sorted(
        (one for deadline, files in partitions for one in pin_order(deadline, files)), key=lambda one: one[:3]
    )
    return [f"{log.directory}/{int(log.path.stem)}.log" for *_, log in ordered[:limit]]


def test_a_long_backlog_takes_no_pins_from_segments_that_retention_deletes_sooner() -> None:
    long = logs("long", *range(0, 100_000, 1_000))
    assert pinned(4, (5_000, long), (6_500, logs("short", 50_000, 60_000))) == [
        "long/0.log",
        "long/1.log",
        "short/0.log",
        "long/2.log",
    ]


def test_partitions_without_a_deadline_share_what_is_left() -> None:
    forever, also, due = logs("forever", 1, 2, 3), logs("also", 9, 9), logs("due", 7)
    assert pinned(4, (None, forever), (None, also), (10, due)) == [
        "due/0.log",
        "forever/0.log",
        "also/0.log",
        "forever/1.log",
    ]


def test_files_that_were_copied_in_another_order_are_pinned_from_the_log_start_on() -> None:
    assert pinned(2, (10, logs("copied", 9, 3, 5))) == ["copied/0.log", "copied/1.log"]


def test_a_segment_goes_no_sooner_than_those_below_it() -> None:
    copied, other = logs("copied", 1, 90, 3), logs("other", 1)
    assert pinned(3, (10, copied), (50, other)) == ["copied/0.log", "other/0.log", "copied/1.log"]


def test_files_of_both_lists_are_ordered_as_in_the_log_and_those_of_earlier_checks_are_marked() -> None:
    found = logs("found", 1, 2, 3)
    ordered = [(at, is_new, file) for at, is_new, _, file in pin_order(10, [found[2]], [found[1], found[2], found[0]])]
    assert ordered == [(10, True, found[0]), (11, True, found[1]), (12, False, found[2])]
