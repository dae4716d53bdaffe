"""The worker with a compactor of the test's own: who is compacted together, who rests, and what is reported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import structlog

from sidecar.archive.state import PartitionState
from sidecar.compactor.candidate_queue import Candidate, CandidateQueue, DeletionUnnoted, LedPartition
from sidecar.compactor.policy import Assessment, Trigger
from sidecar.config import CompactionPolicy
from sidecar.errors import (
    CorruptFile,
    Fenced,
    PartitionError,
    SidecarError,
    StagingFull,
    StagingTooSmall,
    StoreUnavailable,
)
from sidecar.ports import MIB
from tests.archive.builders import LINEAGE
from tests.compactor.compaction_rig import NOW_MS, Rig, led, turns
from tests.fakes.manual_clock import ManualClock


def test_all_that_is_due_goes_into_one_job_the_most_dirty_first() -> None:
    rig = Rig({"some": 200, "none": 0, "much": 900, "half": 100})
    rig.offer()
    turns(rig)
    assert rig.jobs == [["much", "some"]]
    assert rig.sample("partitions_total", result="ok") == 2
    assert rig.sample("bytes_total", side="before") == 1300
    assert rig.sample("last_success_timestamp_seconds") == NOW_MS / 1000
    assert rig.sample("due_partitions") == 0


def test_jobs_are_bounded_by_bytes() -> None:
    mib = 1024 * 1024
    rig = Rig(dict.fromkeys("abcde", mib), max_job_bytes=3 * mib)
    rig.offer()
    turns(rig)
    assert rig.jobs == [["a", "b"], ["c", "d"], ["e"]]


def test_topics_without_a_policy_are_left_alone() -> None:
    rig = Rig({"accounts": 900, "clicks": 900}, topics=["accounts"])
    rig.offer()
    turns(rig)
    assert rig.jobs == [["accounts"]]
    assert [row["topic"] for row in rig.status["partitions"]] == ["accounts"]


def test_an_archive_that_has_not_grown_is_not_looked_at_again() -> None:
    rig = Rig({"accounts": 50})
    for _ in range(3):
        rig.offer()
        turns(rig)
    assert rig.looks == ["accounts"]
    rig.dirty["accounts"] = 500
    rig.offer(led("accounts", end_offset=200))
    turns(rig)
    assert rig.jobs == [["accounts"]]


def test_records_without_a_key_and_malformed_versions_are_logged_counted_and_shown_by_topic() -> None:
    rig = Rig({"odd": 900, "fine": 800})
    with structlog.testing.capture_logs() as logs:
        # What was counted once is clean then: the second compaction reports what is new.
        for dirty, odd in ((900, (3, 2)), (950, (1, 0))):
            rig.dirty["odd"], rig.odd["odd"] = dirty, odd
            rig.offer(led("odd", end_offset=dirty), led("fine"))
            turns(rig)
    found = [line for line in logs if line["event"] == "compaction_unkeyed_or_malformed"]
    assert [(line["partition"], line["unkeyed_dropped"], line["malformed_versions"]) for line in found] == [
        ("odd-0", 3, 2),
        ("odd-0", 1, 0),
    ]
    assert {line["log_level"] for line in found} == {"warning"}
    assert rig.status["invalid_records"] == {"odd": {"unkeyed": 4, "malformed_versions": 2}}
    assert rig.sample("invalid_records_total", kind="unkeyed") == 4
    assert rig.sample("invalid_records_total", kind="malformed_version") == 2


def test_a_partition_that_fails_rests_and_the_others_go_on() -> None:
    rig = Rig({"odd": 900, "fine": 800}, retry_wait_s=60)
    rig.ends["odd"] = CorruptFile("expected magic 2, found 7", file="odd-0/segments/x.log", position=61)
    rig.offer()
    turns(rig)
    assert rig.jobs == [["odd", "fine"]]
    assert rig.row("odd")["quarantined"] == {
        "error": "CorruptFile",
        "reason": "odd-0/segments/x.log, at byte 61: expected magic 2, found 7; restore the object from a replica of the bucket "
        "or an earlier version; then the partition continues",
        "failures": 1,
        "failed_at_ms": NOW_MS,
    }
    assert (rig.sample("quarantined_partitions"), rig.sample("due_partitions")) == (1, 1)
    assert (rig.sample("quarantined_bytes"), rig.sample("max_dirty_ratio")) == (900, 0.9)
    assert rig.sample("last_check_timestamp_seconds") == NOW_MS / 1000
    rig.dirty["fine"] = 900
    rig.offer(led("odd"), led("fine", end_offset=200))
    turns(rig)
    assert rig.jobs[1:] == [["fine"]]
    rig.clock.sleep_s(60)
    turns(rig)
    rig.clock.sleep_s(60)
    turns(rig)
    assert rig.jobs[2:] == [["odd"]]
    assert rig.row("odd")["quarantined"]["failures"] == 2
    assert rig.sample("oldest_due_age_seconds") == 120
    del rig.ends["odd"]
    rig.clock.sleep_s(60)
    turns(rig)
    assert rig.jobs[3:] == [["odd"]]
    assert "quarantined" not in rig.row("odd")
    assert (rig.sample("quarantined_partitions"), rig.sample("oldest_due_age_seconds")) == (0, 0)
    assert rig.sample("quarantined_bytes") == 0


def test_a_partition_that_staging_cannot_hold_is_shown_and_counted_and_the_others_go_on() -> None:
    rig = Rig({"huge": 900, "fine": 800}, retry_wait_s=60)
    rig.ends["huge"] = StagingTooSmall("huge-0: work files would take 102 bytes")
    rig.offer()
    turns(rig)
    found = rig.row("huge")["quarantined"]
    assert (found["error"], found["reason"]) == ("StagingTooSmall", "huge-0: work files would take 102 bytes")
    assert (rig.sample("quarantined_partitions"), rig.sample("partitions_total", result="ok")) == (1, 1)
    registry = rig.metrics.registry
    assert registry.get_sample_value("tiered_sidecar_errors_total", {"kind": "StagingTooSmall"}) == 1


def test_of_a_job_that_fails_as_a_whole_the_one_at_fault_ends_up_alone() -> None:
    topics = {f"t{number:02d}": 900 for number in range(33)}
    rig = Rig(topics)
    rig.job_ends = lambda chosen: SidecarError("a worker ran out of memory") if "t21" in chosen else None
    rig.offer()
    turns(rig)
    assert rig.row("t21")["quarantined"]["reason"] == "a worker ran out of memory"
    assert rig.sample("partitions_total", result="ok") == 32
    assert rig.sample("quarantined_partitions") == 1
    assert len(rig.jobs) < 20


def test_a_fault_of_our_own_is_nobody_elses() -> None:
    rig = Rig({"odd": 900, "fine": 800})
    rig.job_ends = lambda chosen: ZeroDivisionError("a bug") if "odd" in chosen else None
    rig.offer()
    with structlog.testing.capture_logs() as logs:
        turns(rig)
    crashes = [entry for entry in logs if entry["event"] == "compaction_crashed"]
    assert [isinstance(entry["exc_info"], ZeroDivisionError) for entry in crashes] == [True, True]
    assert rig.row("odd")["quarantined"]["error"] == "CompactionCrashed"
    assert rig.sample("partitions_total", result="ok") == 1


def test_where_each_one_fails_alone_the_fault_is_not_theirs_and_all_rest() -> None:
    rig = Rig({f"t{number}": 900 for number in range(10)}, retry_wait_s=60)
    rig.job_ends = lambda _chosen: SidecarError("no Java")
    rig.offer()
    turns(rig)
    assert len(rig.jobs[-1]) == 1
    assert len(rig.jobs) == 4 + 2
    assert not rig.worker.cycle()
    rig.job_ends = lambda _chosen: None
    rig.clock.sleep_s(61)
    turns(rig)
    assert rig.sample("partitions_total", result="ok") == 10


def test_a_store_or_disk_that_fails_is_waited_for_and_quarantines_nobody() -> None:
    for error in (StoreUnavailable("gone"), StagingFull("no room")):
        rig = Rig({"a": 900, "b": 800}, retry_wait_s=60)
        rig.job_ends = lambda _chosen, error=error: error  # type: ignore[misc]
        rig.offer()
        turns(rig)
        assert (rig.jobs, rig.sample("quarantined_partitions")) == ([["a", "b"]], 0)
        rig.job_ends = lambda _chosen: None
        turns(rig)
        assert len(rig.jobs) == 1
        rig.clock.sleep_s(60)
        turns(rig)
        assert rig.jobs[1:] == [["a", "b"]]


def test_a_partition_that_another_broker_leads_is_let_go() -> None:
    rig = Rig({"a": 900, "b": 800})
    rig.ends["a"] = Fenced("leader epoch 7 has committed")
    rig.offer()
    turns(rig)
    assert [row["topic"] for row in rig.status["partitions"]] == ["b"]
    assert (rig.sample("quarantined_partitions"), rig.sample("due_partitions")) == (0, 0)
    rig.offer(led("b"))
    turns(rig)
    assert len(rig.jobs) == 1


def test_partitions_that_are_not_offered_any_more_are_forgotten() -> None:
    rig = Rig({"a": 900, "b": 800})
    rig.ends = dict.fromkeys("ab", PartitionError("odd"))
    rig.offer()
    turns(rig)
    rig.offer(led("b"))
    turns(rig)
    assert rig.sample("quarantined_partitions") == 1
    assert [row["topic"] for row in rig.status["partitions"]] == ["b"]


def test_compaction_without_progress_is_not_repeated_for_ever() -> None:
    rig = Rig({"a": 900})
    compact = rig.compact

    def in_vain(work: Sequence[Candidate]) -> Iterable[Any]:
        yield from compact(work)
        rig.dirty["a"], rig.clean_end["a"] = 900, 0

    rig.worker.compact = in_vain
    rig.offer()
    turns(rig)
    assert len(rig.jobs) == 1
    assert "its first dirty offset is still 0" in rig.row("a")["quarantined"]["reason"]


def test_an_archive_that_cannot_be_read_rests_and_is_well_again_when_it_can() -> None:
    rig = Rig({"a": 50, "b": 900}, retry_wait_s=60)
    look, broken = rig.look, {"a"}

    def fail(partition: LedPartition, policy: CompactionPolicy) -> Assessment:
        if partition.topic_partition.topic in broken:
            raise CorruptFile("a commit is missing", file="commits/7.json")
        return look(partition, policy)

    rig.worker.look = fail
    rig.offer()
    turns(rig)
    assert rig.jobs == [["b"]]
    assert "a commit is missing" in rig.row("a")["quarantined"]["reason"]
    broken.clear()
    rig.clock.sleep_s(60)
    turns(rig)
    assert "quarantined" not in rig.row("a")


def test_nothing_begins_once_the_process_was_asked_to_stop() -> None:
    rig = Rig({"a": 900})
    rig.offer()
    rig.stop.set()
    assert not rig.worker.cycle()
    assert (rig.looks, rig.jobs) == ([], [])


def test_a_job_that_is_given_up_at_the_end_is_nobodys_fault() -> None:
    rig = Rig({"a": 900})

    def ended(_topics: list[str]) -> Exception:
        rig.stop.set()
        return ConnectionResetError("the JVM is gone")

    rig.job_ends = ended
    rig.offer()
    with structlog.testing.capture_logs() as logs:
        assert not rig.worker.cycle()
    assert [entry["event"] for entry in logs if entry["log_level"] in {"error", "critical"}] == []
    assert rig.sample("quarantined_partitions") == 0


def test_what_runs_is_reported_while_it_runs() -> None:
    rig = Rig({"a": 900, "b": 20})
    seen: list[tuple[bool, bool, float]] = []

    def watch(_topics: list[str]) -> None:
        seen.append((rig.row("a")["running"], rig.row("b")["running"], rig.sample("running")))

    rig.job_ends = watch
    rig.offer()
    turns(rig)
    assert seen == [(True, False, 1.0)]
    assert rig.row("a")["running"] is False
    assert rig.row("b") == {
        "topic": "b",
        "partition": 0,
        "running": False,
        "clean_end_offset": 0,
        "cleanable_bytes": 20,
        "dirty_ratio": round(20 / 120, 4),
        "due": None,
        "due_since_ms": None,
    }


def test_a_partition_waits_while_a_deletion_is_not_noted_in_its_archive() -> None:
    """A record that was deleted could win over a live one, which would be gone. To wait is no failure."""
    rig = Rig({"a": 200, "b": 200})
    rig.offer(led("a"), led("b"))
    rig.worker.cycle()
    rig.jobs.clear()
    rig.dirty["a"] = 200
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            rig.offer(replace(led("a"), unnoted_before_offset=50), led("b"))
            turns(rig)
            rig.clock.advance_ms(10**7)
    assert rig.jobs == []
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("compaction_waits", "info")]
    row = rig.row("a")
    assert "50 were probably deleted" in row["waiting"]
    assert "quarantined" not in row
    assert rig.sample("partitions_total", result="failed") == 0
    assert (rig.sample("quarantined_partitions"), rig.sample("oldest_due_age_seconds")) == (0, 0)
    rig.offer(replace(led("a"), unnoted_before_offset=50, is_deletion_unknown=True), led("b"))
    turns(rig)
    assert "could not read whether" in rig.row("a")["waiting"]
    rig.offer(led("a"), led("b"))
    turns(rig)
    assert rig.jobs == [["a"]]
    assert "waiting" not in rig.row("a")


def test_a_deletion_that_is_seen_during_a_job_is_waited_for_without_a_failure() -> None:
    rig = Rig({"a": 200})
    state = PartitionState(LINEAGE, None)

    def offered_before(_topics: list[str]) -> None:
        rig.offer(led("a", end_offset=101))  # a scan during the job, before it was seen

    rig.job_ends = offered_before
    rig.ends["a"] = DeletionUnnoted("records below offset 50 were probably deleted", state, 50)
    rig.offer(led("a"))
    turns(rig)
    turns(rig)
    assert rig.jobs == [["a"]]
    assert "50 were probably deleted" in rig.row("a")["waiting"]
    assert rig.sample("partitions_total", result="failed") == 0
    assert rig.sample("quarantined_partitions") == 0
    del rig.ends["a"]
    rig.offer(led("a", end_offset=102))
    turns(rig)
    assert rig.jobs == [["a"], ["a"]]


def test_what_was_looked_at_is_looked_at_again_once_a_deletion_is_noted() -> None:
    waiting, policy = CandidateQueue(ManualClock(NOW_MS), wait_s=60, wait_max_s=400), CompactionPolicy()
    waiting.replace([(led("a"), policy)])
    (entry,) = waiting.to_look_at()
    entry.assessed(Assessment(0, 100, 1, 200, Trigger.DIRTY_RATIO, None), NOW_MS)
    waiting.replace([(led("a"), policy)])
    assert len(waiting.due()) == 1
    waiting.replace([(replace(led("a"), unnoted_before_offset=50), policy)])
    assert not waiting.due()
    assert waiting.to_look_at() == []
    waiting.replace([(led("a"), policy)])
    assert len(waiting.to_look_at()) == 1


def test_a_partition_whose_compaction_was_undone_is_compacted_again() -> None:
    waiting, policy = CandidateQueue(ManualClock(NOW_MS), wait_s=60, wait_max_s=400), CompactionPolicy()
    waiting.replace([(led("a"), policy)])
    (entry,) = waiting.to_look_at()
    dirty = Assessment(0, 100, 1, 200, Trigger.DIRTY_RATIO, None)
    entry.assessed(dirty, NOW_MS)
    entry.succeeded()
    entry.assessed(replace(dirty, undone_by_commit=7), NOW_MS)
    assert len(waiting.due()) == 1
    entry.succeeded()
    with pytest.raises(PartitionError, match="first dirty offset"):
        entry.assessed(replace(dirty, undone_by_commit=7), NOW_MS)


def test_the_most_dirty_comes_first_and_who_is_not_due_not_at_all() -> None:
    waiting, policy = CandidateQueue(ManualClock(NOW_MS), wait_s=60, wait_max_s=400), CompactionPolicy()
    weights: dict[str, tuple[int, int, Trigger | None]] = {
        "half": (50, 50, Trigger.DIRTY_RATIO),
        "not due": (0, 100, None),
        "all": (0, 10, Trigger.DIRTY_RATIO),
        "old": (90, 10, Trigger.MAX_LAG),
        "half too": (50, 50, Trigger.DIRTY_RATIO),
    }
    waiting.replace([(led(name), policy) for name in weights])
    for entry in waiting.to_look_at():
        entry.assessed(Assessment(0, 10, *weights[entry.led.topic_partition.topic], None), NOW_MS)
    assert [one.led.topic_partition.topic for one in waiting.due()] == ["all", "half", "half too", "old"]


@pytest.mark.parametrize(
    ("max_bytes", "max_count", "expected"),
    [
        (20 * MIB, 10, ["a", "b", "c"]),
        (20 * MIB, 2, ["a", "b"]),
        (4 * MIB, 10, ["a", "b"]),
        (4 * MIB - 1, 10, ["a"]),
        (MIB, 10, ["a"]),
        (20 * MIB, 1, ["a"]),
    ],
)
def test_a_job_takes_the_first_ones_that_fit_and_one_at_least(
    max_bytes: int, max_count: int, expected: list[str]
) -> None:
    rig = Rig(dict.fromkeys("abc", 2 * MIB - 100), max_job_bytes=max_bytes)
    rig.worker._together = max_count
    rig.offer()
    rig.worker.cycle()
    assert rig.jobs == [expected]
