"""Points in time: what is before everything is refused, and a plan does not promise an end that it does not know."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from sidecar.archive.bundle import log_size_bytes
from sidecar.cli.restore.report import show
from sidecar.errors import SettingsError
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.restore.plan import PartitionPlan, SegmentPlan
from sidecar.restore.prechecks import empty_before_ms
from sidecar.restore.request import RestoreRequest
from sidecar.restore.restore import plan_restore, restore
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden
from tests.restore.archives import CLOCK, archived, batches_of, golden_topic_id, own_log_dir, restored
from tests.restore.test_deleted_records import deleted_before
from tests.runner.rig import archive, archived_states, copy_partitions, tools_for
from tests.segment.made_logs import LEADER_EPOCH, roll


def first_ms(partition: int) -> int:
    """The latest record of the partition's first batch."""
    return batches_of(golden("4.3.0") / "logs" / f"orders-{partition}")[0].max_timestamp_ms


def request_for(log_dir: Path, until_ms: int) -> RestoreRequest:
    return RestoreRequest("orders", log_dir, topic_id=golden_topic_id("orders"), until_timestamp_ms=until_ms)


@pytest.mark.parametrize("plans", [True, False])
def test_a_time_before_all_records_is_refused(plans: bool, tmp_path: Path) -> None:
    log_dir, first = own_log_dir(tmp_path), min(map(first_ms, (0, 1)))
    run = plan_restore if plans else restore
    with pytest.raises(SettingsError, match=rf"nothing of orders lies before a later record.* has one of {first} \(2"):
        run(archived(), CLOCK, request_for(log_dir, first - 1))
    assert not list(log_dir.glob("orders*"))


def test_seconds_are_guessed_and_milliseconds_named(tmp_path: Path) -> None:
    seconds = first_ms(0) // 1000
    with pytest.raises(SettingsError, match=rf"later record.*Milliseconds are expected: is it {seconds}000\?"):
        restored(archived(), own_log_dir(tmp_path), "orders", until_timestamp_ms=seconds)


def test_a_partition_that_begins_later_is_empty_beside_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log_dir = own_log_dir(tmp_path)
    early, late = sorted((0, 1), key=first_ms)
    assert first_ms(early) < first_ms(late)
    report = restore(archived(), CLOCK, request_for(log_dir, first_ms(late) - 1))
    assert report.exit_code == 0
    assert [outcome.to_json()["empty_before_timestamp_ms"] for outcome in report.outcomes] == [
        first_ms(late) if outcome.plan.topic_partition.partition == late else None for outcome in report.outcomes
    ]
    assert batches_of(log_dir / f"orders-{early}")
    assert not batches_of(log_dir / f"orders-{late}")
    assert [bool(outcome.segments) for outcome in report.outcomes] == [partition == early for partition in (0, 1)]
    show(report, colors=False, dry_run=False)
    assert (
        f"orders-{late}: its log is empty, because its first batch has a record later than" in capsys.readouterr().err
    )


def test_partitions_are_checked_at_once(tmp_path: Path) -> None:
    store = archived()
    both, read = Barrier(2, timeout=120), store.read

    def waiting(key: str, *arguments: Any, **options: Any) -> bytes:
        if key.endswith(".log"):
            both.wait()
        return read(key, *arguments, **options)

    store.read = waiting  # type: ignore[method-assign]
    with pytest.raises(SettingsError, match="nothing of orders lies before a later record"):
        plan_restore(store, CLOCK, request_for(own_log_dir(tmp_path), 1))


def test_a_first_batch_inside_a_segment_is_found_by_its_index() -> None:
    """Where records were deleted a log begins anywhere in a large segment, which is not read from its beginning."""
    store = archived()
    states = [state for state in archived_states(store).values() if state.lineage.topic_partition.topic == "orders"]
    segments = [state.segments[0] for state in states]
    assert len(segments) == 2
    plans = [
        PartitionPlan(state, (SegmentPlan(found, last, last + 1, 1),), last, None, (), False)
        for state, found in zip(states, segments, strict=True)
        if (last := found.end_offset - 1)
    ]
    sizes_bytes, read = list[int](), store.read

    def counted(key: str, position: int = 0, size_bytes: int | None = None) -> bytes:
        data = read(key, position, size_bytes)
        sizes_bytes.append(len(data))
        return data

    store.read = counted  # type: ignore[method-assign]
    early = request_for(Path(), 1)
    found_ms = [empty_before_ms(store, early, plan) for plan in plans]
    assert sum(sizes_bytes) < sum(map(log_size_bytes, segments)) / 2
    logs, times = golden("4.3.0") / "logs", list[int]()
    for plan, found in zip(plans, segments, strict=True):
        batches = batches_of(logs / str(plan.topic_partition))
        last = [batch for batch in batches if batch.first_offset < found.end_offset][-1]
        times.append(last.max_timestamp_ms)
    assert found_ms == times
    later = [time if time > min(times) else None for time in times]
    between = request_for(Path(), min(times))
    assert [empty_before_ms(store, between, plan) for plan in plans] == later


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "outside of the range"])
@pytest.mark.parametrize(("start_offset", "segments_reached"), [(193, 1), (700, 3)])
def test_a_later_batch_below_the_start_does_not_end_the_log(
    start_offset: int, segments_reached: int, is_deleted: bool, tmp_path: Path
) -> None:
    """Neither there, nor, where nothing above it in its segment is later than the time, with that segment."""
    end_offset = archived_states(archived())["orders-0"].end_offset or 0
    batches = [batch for batch in batches_of(golden("4.3.0") / "logs" / "orders-0") if batch.first_offset < end_offset]
    wanted = [batch for batch in batches if batch.last_offset >= start_offset]
    ends = [*(batch.first_offset for batch in wanted), end_offset]
    latest_below = max(
        batch.max_timestamp_ms
        for batch in batches
        if batch.segment_base_offset == wanted[0].segment_base_offset and batch.last_offset < start_offset
    )
    for number, until_ms in enumerate((wanted[0].max_timestamp_ms, latest_below - 1)):
        (tmp_path / str(number)).mkdir()
        log_dir = own_log_dir(tmp_path / str(number))
        options = {} if is_deleted else {"offset_range": (start_offset, end_offset)}
        store = deleted_before(start_offset) if is_deleted else archived()
        outcome = restored(store, log_dir, "orders", until_timestamp_ms=until_ms, **options)
        kept = list(takewhile(lambda batch: batch.max_timestamp_ms <= until_ms, wanted))  # noqa: B023
        assert kept
        assert outcome.log is not None
        assert outcome.log.end_offset == ends[len(kept)]
        assert [found.content for found in batches_of(log_dir / "orders-0")] == [found.content for found in kept]
    assert len({batch.segment_base_offset for batch in kept}) == segments_reached


def test_earlier_segments_above_the_end_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As above a record that a producer gave a time in the future."""
    store, source = MemoryStore(), copy_partitions(tmp_path, "orders-0")
    times_ms = {0: 5, 1: 9, 2: 5, 3: 6, 4: 7, 5: -1, 6: 7}
    segments = {
        offset: [build_batch([Record(offset, time_ms, b"k", b"v", ())], leader_epoch=LEADER_EPOCH)]
        for offset, time_ms in times_ms.items()
    }
    segments |= {7: [], 8: []}  # An old cleaner has taken all that was in the last but one.
    roll(source, segments, 8)
    (source / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 8\n")
    with tools_for(source, store, tmp_path / "state") as context:
        assert archive(context, source, "orders").errors == []
    for until_ms, left_out in ((6, "3 segments"), (9, "")):
        (tmp_path / str(until_ms)).mkdir()
        log_dir = own_log_dir(tmp_path / str(until_ms))
        plan = plan_restore(store, CLOCK, request_for(log_dir, until_ms))
        show(plan, colors=False, dry_run=True)
        planned = capsys.readouterr().err
        show(restore(store, CLOCK, request_for(log_dir, until_ms)), colors=False, dry_run=False)
        for shown in (planned, capsys.readouterr().err):
            assert ("left out above the log's end" in shown) == bool(left_out)
            assert f"later than --until-timestamp: {left_out}." in shown or not left_out


def test_a_plan_says_that_its_end_is_a_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log_dir, batches = own_log_dir(tmp_path), batches_of(golden("4.3.0") / "logs" / "orders-0")
    until_ms = batches[len(batches) // 2].max_timestamp_ms
    plan = plan_restore(archived(), CLOCK, request_for(log_dir, until_ms))
    assert plan.outcomes[0].to_json()["end_offset_is_upper_bound"]
    show(plan, colors=False, dry_run=True)
    shown = capsys.readouterr()
    assert f"≤ {plan.outcomes[0].to_json()['end_offset']}" in shown.out
    assert "`to` is an upper bound" in shown.err
    done = restore(archived(), CLOCK, request_for(log_dir, until_ms))
    assert not done.outcomes[0].to_json()["end_offset_is_upper_bound"]
