"""An archive whose bytes were changed: reported by key and position, nothing of it gets a name, the rest is restored."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from sidecar.errors import StoreError, StoreUnavailable
from sidecar.restore.request import ProducerStateMode, RestoreRequest
from sidecar.restore.restore import RestoreReport, restore
from sidecar.segment.log_check import ExpectedLog
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.restore.archives import CLOCK, archived, golden_topic_id, own_log_dir
from tests.restore.test_interruptions import archive_of_one_large_segment

Change = Callable[[bytes], bytes]


def segment_keys(store: MemoryStore, part: str = "/orders/0/") -> list[str]:
    return sorted(key for key in store.objects if part in key and "/segments/" in key)


def run(store: MemoryStore, log_dir: Path) -> RestoreReport:
    return restore(store, CLOCK, RestoreRequest("orders", log_dir, topic_id=golden_topic_id("orders")))


def flipped(position: int) -> Change:
    return lambda data: data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :]


@pytest.mark.parametrize(
    ("suffix", "change", "reported"),
    [
        (".log", flipped(3000), "at byte "),
        (".log", flipped(13), "a leader epoch or an offset was changed"),
        (".log", lambda data: data[:-1], "at byte {size_bytes}: ends there"),
        (".log", lambda data: data + b"\0", "more than the"),
        (".log", lambda data: b"", "at byte 0"),
        (".indexes", flipped(0), "part offset_index"),
        (".indexes", lambda data: data[:-3], "bytes, but the commit says"),
        (".indexes", lambda data: data + b"\0", "has more bytes"),
    ],
)
def test_damage_is_reported_and_the_other_partition_is_restored(
    suffix: str, change: Change, reported: str, tmp_path: Path
) -> None:
    store, log_dir = archived(), own_log_dir(tmp_path)
    key = next(key for key in segment_keys(store)[4:] if key.endswith(suffix))
    good = store.objects[key]
    store.damage(key, change)
    report = run(store, log_dir)
    assert report.exit_code == 3
    bad, fine = report.outcomes
    assert key in bad.problem
    assert reported.format(size_bytes=len(change(good))) in bad.problem
    assert "replica of the bucket" in bad.problem
    assert fine.log is not None
    assert not (log_dir / "orders-0").exists()
    name = f"{int(key.rpartition('/')[2][:20]):020d}.log"
    assert not (log_dir / "orders-0.restoring" / name).exists()
    assert not list((log_dir / "orders-0.restoring").glob("*.part"))
    assert b"orders 0" not in (log_dir / "recovery-point-offset-checkpoint").read_bytes()
    # Repaired, the same command goes on: what is whole is not fetched again.
    store.objects[key] = good
    store.calls.clear()
    again = run(store, log_dir)
    assert again.exit_code == 0
    assert [outcome.state for outcome in again.outcomes] == ["restored", "done before"]
    assert store.calls["stream"] == len(again.outcomes[0].plan.segments) - again.outcomes[0].segments_resumed
    assert sorted(path.name for path in log_dir.iterdir() if path.is_dir()) == ["orders-0", "orders-1"]
    assert not list(log_dir.rglob("*.note"))


@pytest.mark.parametrize(("operation", "suffix"), [("stream", ".log"), ("read", ".indexes")])
def test_a_damaged_answer_is_no_damaged_object(operation: str, suffix: str, tmp_path: Path) -> None:
    store = archived()
    store.faults = [Fault(operation, 0, FaultKind.DAMAGED_ANSWER, suffix)]
    with capture_logs() as logs:
        assert run(store, own_log_dir(tmp_path)).exit_code == 0
    assert [(entry["event"], entry["key"].endswith(suffix)) for entry in logs] == [("answer_damaged", True)]
    assert store.calls["stream"] == len(segment_keys(store, "/orders/")) // 2 + (operation == "stream")


def test_a_complete_file_that_has_another_size_later_is_fetched_again(tmp_path: Path) -> None:
    store, log_dir = archived(), own_log_dir(tmp_path)
    damaged = max(key for key in segment_keys(store) if key.endswith(".log"))
    good = store.objects[damaged]
    store.damage(damaged, flipped(3000))
    assert run(store, log_dir).exit_code == 3
    complete = min((log_dir / "orders-0.restoring").glob("*.log"))
    content = complete.read_bytes()
    os.truncate(complete, len(content) - 1)
    store.objects[damaged] = good
    assert run(store, log_dir).exit_code == 0
    assert (log_dir / "orders-0" / complete.name).read_bytes() == content


def test_batches_that_do_not_add_up_to_the_commit_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_commit = ExpectedLog.of_commit
    monkeypatch.setattr(ExpectedLog, "of_commit", lambda found: replace(of_commit(found), batch_count=0))
    for outcome in run(archived(), own_log_dir(tmp_path)).outcomes:
        assert "the commit says an end below" in outcome.problem


@pytest.mark.leaves_damage("checksum_mismatch")
def test_a_damaged_batch_ends_the_download_of_its_segment(tmp_path: Path) -> None:
    received: list[int] = []
    store = archive_of_one_large_segment(tmp_path)
    key = next(key for key in segment_keys(store, "/large/0/") if key.endswith(".log"))
    store.damage(key, flipped(300_000))
    request = RestoreRequest("large", own_log_dir(tmp_path), topic_id=golden_topic_id("orders"))
    (outcome,) = restore(store, CLOCK, request, progress=lambda found: received.append(found.bytes_done)).outcomes
    assert f"{key}, at byte 262" in outcome.problem
    assert "damaged" in outcome.problem
    assert max(received) < 4 * 2**20 < outcome.size_bytes


@pytest.mark.leaves_damage("missing_object")
def test_a_missing_object_is_reported(tmp_path: Path) -> None:
    store = archived()
    log_key, indexes_key = (
        next(key for key in segment_keys(store) if key.endswith(end)) for end in (".log", ".indexes")
    )
    del store.objects[log_key]
    report = run(store, own_log_dir(tmp_path))
    assert f"{log_key}: committed, but not in the store" in report.outcomes[0].problem
    del store.objects[indexes_key]
    report = run(store, tmp_path / "data")
    assert f"{indexes_key}: committed, but not in the store" in report.outcomes[0].problem


@settings(max_examples=15)
@given(which=st.integers(0, 10**9), position=st.integers(0, 10**9), content=st.binary(min_size=1, max_size=40))
def test_arbitrary_bytes_in_an_object_never_pass(
    which: int, position: int, content: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = archived()
    keys = segment_keys(store)
    key = keys[which % len(keys)]
    before = store.objects[key]
    at = position % len(before)
    changed = before[:at] + content + before[at + len(content) :]
    store.objects[key] = changed
    directory = tmp_path_factory.mktemp("damage")
    report = run(store, own_log_dir(directory))
    if changed == before:
        assert report.exit_code == 0
    elif report.outcomes[0].problem:
        assert key in report.outcomes[0].problem
        assert not (directory / "data" / "orders-0").exists()
    else:
        # The spare parts at the end of `.indexes` are checked too: nothing is left that could pass.
        pytest.fail(f"{key}: {content!r} at byte {at} passed")
    store.objects[key] = before


@pytest.mark.parametrize("operation", ["stream", "read"])
def test_a_store_that_goes_away_ends_the_command_and_keeps_what_is_whole(operation: str, tmp_path: Path) -> None:
    store, log_dir = archived(), own_log_dir(tmp_path)
    store.faults = [Fault(operation, 5, FaultKind.UNAVAILABLE, "/segments/")]
    with pytest.raises(StoreUnavailable):
        run(store, log_dir)
    assert not (log_dir / "orders-0").exists()
    store.faults, before = [], sum(1 for _ in log_dir.glob("orders-*.restoring/*.log"))
    store.calls.clear()
    assert run(store, log_dir).exit_code == 0
    assert store.calls["stream"] == 12 - before


@pytest.mark.parametrize("operation", ["read", "stream"])
def test_an_object_without_immediate_reads_stops_its_partition_alone(operation: str, tmp_path: Path) -> None:
    store, log_dir = archived(), own_log_dir(tmp_path)
    suffix = ".log" if operation == "stream" else ".indexes"
    key = next(key for key in segment_keys(store) if key.endswith(suffix))
    store.faults = [Fault(operation, 0, FaultKind.FROZEN, key)]
    report = run(store, log_dir)
    assert report.exit_code == 3
    assert [outcome.state for outcome in report.outcomes] == ["stopped", "restored"]
    assert key in report.outcomes[0].problem
    assert run(store, log_dir).exit_code == 0


@pytest.mark.parametrize(
    ("number", "suffix", "options"),
    [
        (0, ".log", {"until_timestamp_ms": 2**40 - 1}),
        (-1, ".indexes", {"producer_state": ProducerStateMode.DROP}),
    ],
)
def test_an_object_without_immediate_reads_stops_its_partition_alone_where_it_is_read_before(
    number: int, suffix: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """With a time, the first batches are read: is anything left? Without producers, the last ones: is a transaction open?"""
    store = archived()
    key = [key for key in segment_keys(store) if key.endswith(suffix)][number]
    store.faults = [Fault(operation, n, FaultKind.FROZEN, key) for operation in ("read", "stream") for n in range(9)]
    request = RestoreRequest("orders", own_log_dir(tmp_path), topic_id=golden_topic_id("orders"), **options)
    report = restore(store, CLOCK, request)
    assert [outcome.state for outcome in report.outcomes] == ["stopped", "restored"]
    assert key in report.outcomes[0].problem


def test_a_commit_log_that_cannot_be_read_stops_before_anything_is_written(tmp_path: Path) -> None:
    store, log_dir = archived(), own_log_dir(tmp_path)
    store.faults = [Fault("list", 0, FaultKind.DENIED)]
    with pytest.raises(StoreError):
        run(store, log_dir)
    assert not list(log_dir.glob("orders*"))
