"""Failing disks, absurd files and poor brokers: what they may stop, and what they may not."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sidecar.errors import StoreDenied, StoreUnavailable
from sidecar.logformat import batches
from sidecar.logformat.library import walk_file
from sidecar.model import PartName
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.golden import golden, golden_copy
from tests.runner.rig import archive, archived_states, ranges, rolled_ranges, tools_for
from tests.snapshot_files import write_snapshot


@pytest.mark.parametrize("suffix", ["log", "index", "timeindex", "snapshot"])
def test_a_bad_sector_stops_its_partition_and_no_other(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir, store = golden("4.3.0") / "logs", MemoryStore()
    bad = min((log_dir / "orders-0").glob(f"*.{suffix}"))
    inode, real = bad.stat().st_ino, os.preadv

    def preadv(descriptor: int, buffers: list[memoryview], position: int) -> int:
        if os.fstat(descriptor).st_ino == inode:
            raise OSError(errno.EIO, "Input/output error")
        return real(descriptor, buffers, position)

    def walk_file_on_it(descriptor: int, *arguments: Any) -> Any:
        unreadable = os.fstat(descriptor).st_ino == inode
        return walk_file(directory if unreadable else descriptor, *arguments)

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(batches, "walk_file", walk_file_on_it)
    directory = os.open(tmp_path, os.O_RDONLY)  # what no read succeeds on
    with tools_for(log_dir, store, tmp_path) as context:
        report = archive(context, log_dir, "orders")
    os.close(directory)
    errors = [str(outcome.error) for outcome in report.outcomes if outcome.error]
    assert len(errors) == 1
    assert f"{bad}, at byte 0: cannot be read (Input/output error)" in errors[0]
    assert ranges(archived_states(store)["orders-1"]) == rolled_ranges(log_dir, "orders-1")


def test_an_index_larger_than_its_log_could_need_is_rebuilt_without_being_read(tmp_path: Path) -> None:
    copy, store = golden_copy("4.3.0", tmp_path / "copy") / "logs", MemoryStore()
    index = min((copy / "orders-1").glob("*.index"))
    os.truncate(index, 8 << 30)
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tools_for(copy, store, tmp_path / "state") as context:
        assert archive(context, copy, "orders").errors == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kib < 256 * 1024
    segment = archived_states(store)["orders-1"].segments[0]
    part = segment.part(PartName.OFFSET_INDEX)
    assert part is not None
    assert 0 < part.size_bytes < 4096


def test_a_producer_that_the_broker_forgot_by_its_own_clock_is_no_mismatch(tmp_path: Path) -> None:
    copy, store = golden_copy("4.3.0", tmp_path / "copy") / "logs", MemoryStore()
    snapshots = sorted((copy / "codecs-java-0").glob("*.snapshot"))
    for snapshot in snapshots:
        snapshot.write_bytes(write_snapshot([]))
        nine_days_later_s = snapshot.stat().st_mtime + 9 * 86_400
        os.utime(snapshot, (nine_days_later_s, nine_days_later_s))
    with tools_for(copy, store, tmp_path / "state", producer_id_expiration_ms=7 * 86_400_000) as context:
        context.clock.sleep_s(10 * 86_400)
        report = archive(context, copy, "codecs-java")
    assert {key for outcome in report.outcomes for key in outcome.conformance} == {"permissible"}


def test_an_empty_snapshot_beside_fresh_producers_is_a_mismatch_and_ours_is_archived(tmp_path: Path) -> None:
    copy, store = golden_copy("4.3.0", tmp_path / "copy") / "logs", MemoryStore()
    for snapshot in (copy / "codecs-java-0").glob("*.snapshot"):
        snapshot.write_bytes(write_snapshot([]))
    with tools_for(copy, store, tmp_path / "state") as context:
        report = archive(context, copy, "codecs-java")
    assert {key for outcome in report.outcomes for key in outcome.conformance} == {"wrong"}
    parts = [segment.part(PartName.PRODUCER_SNAPSHOT) for segment in archived_states(store)["codecs-java-0"].segments]
    assert all(part is not None and part.size_bytes > 10 for part in parts)


def test_commits_record_the_sources_size(tmp_path: Path) -> None:
    log_dir, store = golden("4.3.0") / "logs", MemoryStore()
    with tools_for(log_dir, store, tmp_path) as context:
        archive(context, log_dir, "append-time")
    for segment in archived_states(store)["append-time-0"].segments:
        assert segment.source_path is not None
        assert segment.source_size_bytes == Path(segment.source_path).stat().st_size


def failing(error: Exception) -> Callable[[str], None]:
    def listing(_prefix: str) -> None:
        raise error

    return listing


def test_objects_of_an_abandoned_attempt_go_even_where_uploads_may_not_be_listed(tmp_path: Path) -> None:
    log_dir = golden("4.3.0") / "logs"
    store = MemoryStore(faults=[Fault("put_if_absent", 0, FaultKind.DENIED)])
    with tools_for(log_dir, store, tmp_path) as context:
        archive(context, log_dir, "append-time")
        store.unfinished_uploads = failing(StoreDenied("not allowed"))  # type: ignore[method-assign,assignment]
        assert archive(context, log_dir, "append-time").errors == []
        named = {
            f"{state.lineage.root}/{key}"
            for state in archived_states(store).values()
            for segment in state.segments
            for key in (segment.log_key, segment.indexes_key)
        }
        assert {key for key in store.objects if "/segments/" in key} == named
        assert context.journal.attempts(archived_states(store)["append-time-0"].lineage.root) == ()


def test_an_attempt_stays_in_the_journal_while_the_store_does_not_answer(tmp_path: Path) -> None:
    log_dir = golden("4.3.0") / "logs"
    store = MemoryStore(faults=[Fault("put_if_absent", nth, FaultKind.DENIED) for nth in range(4)])
    with tools_for(log_dir, store, tmp_path) as context:
        archive(context, log_dir, "append-time")
        delete = store.delete
        store.delete = failing(StoreUnavailable("gone"))  # type: ignore[method-assign,assignment]
        archive(context, log_dir, "append-time")
        root = archived_states(store)["append-time-0"].lineage.root
        assert context.journal.attempts(root) != ()
        store.delete = delete  # type: ignore[method-assign]
        archive(context, log_dir, "append-time")
