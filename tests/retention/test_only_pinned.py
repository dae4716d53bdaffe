"""Segments of which only our descriptors are left: in danger as nothing else is, reported while they wait, and when they go."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.http.pages import status_json
from tests.retention.pinned_rig import Outage, after_an_outage, open_deleted
from tests.runner.rig import (
    archived_states,
    copy_partitions,
    ranges,
    remove_offsets,
    rolled_ranges,
    rounds_over,
    sample,
    status_of,
    tools_for,
)


@pytest.mark.parametrize("left", [3, 0], ids=["some are left", "the active one is left"])
def test_what_is_only_held_open_waits_and_is_at_risk(left: int, tmp_path: Path) -> None:
    with after_an_outage(tmp_path) as (context, rounds, outage, directory):
        outage.left = 0
        rounds.run_once()
        spans = rolled_ranges(directory.parent, "orders-0")
        sizes = [(directory / f"{base_offset:020d}.log").stat().st_size for base_offset, _ in spans]
        written_s = min(path.stat().st_mtime for path in directory.glob("*.log"))
        gone = len(spans) - left
        remove_offsets(directory, lambda offset: offset >= spans[gone - 1][1])
        for _ in range(2):
            work, report = rounds.plan()
            (row,) = status_json(status_of(context))["partitions"]
            assert (row["segments_waiting"], row["bytes_waiting"]) == (len(spans), sum(sizes))
            assert (row["pinned_deleted_bytes"], row["state"]) == (sum(sizes[:gone]), "at_risk")
            assert row["deadline_ms"] == context.clock.now_ms()
            assert row["oldest_waiting_ms"] == pytest.approx(written_s * 1000, abs=1)
            first = {"kind": "at_risk", "base_offset": 0, "end_offset": spans[gone - 1][1]}
            assert row["ranges"][0] == first
            assert sample(context, "pending_segments") == len(spans)
            oldest_s = sample(context, "oldest_pending_segment_age_seconds")
            assert oldest_s == pytest.approx(context.clock.now_ms() / 1000 - written_s, abs=1)
            assert sample(context, "data_at_risk_in_seconds") == 0.0
            rounds.work(work, report)
        outage.left = None
        rounds.run_once()
        (row,) = status_json(status_of(context))["partitions"]
        assert (row["segments_waiting"], row["bytes_waiting"], row["pinned_deleted_bytes"]) == (0, 0, 0)
        assert (row["state"], row["deadline_ms"]) == ("archived", None)
        assert sample(context, "pending_segments") == 0
        assert sample(context, "data_at_risk_in_seconds") == math.inf
    assert ranges(archived_states(outage.store)["orders-0"]) == spans


def test_a_partition_that_rests_does_not_hide_what_is_only_held_open(tmp_path: Path) -> None:
    log_dir, outage = copy_partitions(tmp_path, "orders-0"), Outage()
    spans = rolled_ranges(log_dir, "orders-0")
    with tools_for(log_dir, outage.store, tmp_path / "state", retry_wait_s=60) as context:
        rounds = rounds_over(context, log_dir)
        rounds.run_once()
        remove_offsets(log_dir / "orders-0", lambda offset: offset >= spans[-1][1])
        _, report = rounds.plan()
        assert len(report.backed_off) == 1
        (row,) = status_json(status_of(context))["partitions"]
        assert row["segments_waiting"] == sample(context, "pending_segments") == len(spans)
        assert (row["error"], sample(context, "data_at_risk_in_seconds")) == ("StoreUnavailable", 0.0)


def test_what_ends_with_the_process_is_reported_when_it_does(tmp_path: Path) -> None:
    with after_an_outage(tmp_path) as (context, rounds, outage, directory):
        outage.left = 0
        rounds.run_once()
        spans = rolled_ranges(directory.parent, "orders-0")
        first, second = (directory / f"{base_offset:020d}.log" for base_offset, _ in spans[:2])
        size_bytes = first.stat().st_size + second.stat().st_size
        second.rename(second.with_name(f"{second.name}.deleted"))  # As a broker leaves it for a minute.
        remove_offsets(directory, lambda offset: offset >= spans[1][1])
        context.stop.set()
        with capture_logs() as logs:
            rounds.run_once()
            context.pinned.release()
        (line,) = [line for line in logs if line["event"] == "pinned_segments_released"]
        assert (line["log_level"], line["segments"], line["size_bytes"]) == ("warning", 2, size_bytes)
        assert line["partitions"] == ["orders-0"]
        assert line["effect"].startswith("unless another replica has them, their records are lost; ")
        assert "reports the offsets as offsets_lost. Without a connection to the broker," in line["effect"]
        assert open_deleted(directory.parent) == []


def test_what_the_broker_deletes_while_a_round_lasts_is_counted_at_once(tmp_path: Path) -> None:
    with after_an_outage(tmp_path) as (context, rounds, outage, directory):
        counted: list[float | None] = []

        def delete_all(operation: str, _key: str) -> None:
            if operation == "upload":
                remove_offsets(directory, lambda offset: offset >= spans[-1][1])
                counted.append(sample(context, "pinned_deleted_bytes"))

        spans = rolled_ranges(directory.parent, "orders-0")
        sizes = [(directory / f"{base_offset:020d}.log").stat().st_size for base_offset, _ in spans]
        outage.store.before = delete_all
        rounds.run_once()
        assert counted[0] == sum(sizes)
        assert sample(context, "pinned_deleted_bytes") == 0.0


def test_what_still_lies_on_the_disk_is_let_go_in_silence(tmp_path: Path) -> None:
    with after_an_outage(tmp_path) as (context, rounds, outage, _directory):
        outage.left = 0
        context.stop.set()
        with capture_logs() as logs:
            rounds.run_once()
        assert "pinned_segments_released" not in {line["event"] for line in logs}
