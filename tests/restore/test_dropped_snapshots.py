"""`snapshots check`, `rebuild` and `heal` on a log that was restored without producers: nobody of old comes back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from producer_state.replay import replay
from producer_state.snapshot import read_snapshot
from producer_state.table import ProducerTable
from sidecar.archive.bundle import EMPTY_SNAPSHOT
from sidecar.clock import SystemClock
from sidecar.commits.lineages import find_all_lineages
from sidecar.compaction.rules import CompactionRules
from sidecar.compactor.archive.compactor import ArchiveCompactor
from sidecar.compactor.archive.plan import CompactionRequest
from sidecar.config.topic_filter import TopicFilter
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.restore.request import LeaderEpochMode, ProducerStateMode
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.segment.dropped_producers import NAME, dropped_note
from sidecar.snapshots.check import check
from sidecar.snapshots.jobs import Forgetting
from sidecar.snapshots.rebuild import rebuild
from sidecar.snapshots.resolve_paths import Targets, archive_targets, find_targets
from sidecar.storage.opening import open_store
from sidecar.store_settings import StoreSettings
from tests.fakes.memory_store import MemoryStore
from tests.golden import wall_clock_ms
from tests.restore.archives import archived, own_log_dir, restored
from tests.restore.dropped_log import log_written_on
from tests.restore.hole_log import TOPIC_ID, archived_with_hole
from tests.runner.rig import archive, archived_states, copy_partitions, remove_offsets, tools_for
from tests.segment.made_logs import LEADER_EPOCH, roll
from tests.snapshots.log_dirs import DAY_MS, healed, snapshots_in

NOW_MS = wall_clock_ms("4.3.0")
FORGETTING = Forgetting(NOW_MS, DAY_MS)


@pytest.fixture(name="directory")
def _directory(tmp_path: Path) -> Path:
    found = log_written_on(tmp_path)
    (found.parent / ".kafka_cleanshutdown").touch()
    return found


def results(targets: Targets) -> list[str]:
    (checking,) = check(targets, LocalEngine(1), FORGETTING).partitions
    return [str(snapshot.result) for snapshot in checking.snapshots]


def on_disk(directory: Path) -> Targets:
    return find_targets([directory], TopicFilter())


def test_its_empty_snapshots_are_found_right_and_without_the_note_they_hide_somebody(directory: Path) -> None:
    assert results(on_disk(directory)) == ["equal"] * 4
    (directory / NAME).unlink()
    assert "wrong" in results(on_disk(directory))


def test_so_are_they_in_an_archive_of_it(directory: Path, tmp_path: Path) -> None:
    settings = StoreSettings(url=str(tmp_path / "archive"))
    with tools_for(directory.parent, open_store(settings), tmp_path / "state") as context:
        assert archive(context, directory.parent, "orders").exit_code == 0
    assert results(archive_targets(settings, SystemClock(), TopicFilter())) == ["equal"] * 4


def test_so_are_they_below_lost_offsets_in_it(tmp_path: Path) -> None:
    """The segment there ends where its batches do, and so does its snapshot. Who is in a transaction is in those above."""
    log_dir, settings = own_log_dir(tmp_path), StoreSettings(url=str(tmp_path / "archive"))
    outcome = restored(
        archived_with_hole(tmp_path),
        log_dir,
        "t",
        topic_id=TOPIC_ID,
        leader_epochs=LeaderEpochMode.KEEP,
        producer_state=ProducerStateMode.DROP,
    )
    assert outcome.log is not None
    with tools_for(log_dir, open_store(settings), tmp_path / "state again", record_lost=True) as context:
        for _ in range(2):
            archive(context, log_dir, "t")
    checkings = check(archive_targets(settings, SystemClock(), TopicFilter()), LocalEngine(1), FORGETTING).partitions
    found = [[(snapshot.offset, str(snapshot.result)) for snapshot in checking.snapshots] for checking in checkings]
    assert found == [[(10, "equal"), (12, "equal")], [(30, "permissible"), (40, "permissible"), (50, "equal")]]


def test_so_is_an_archive_that_goes_on_with_the_log_that_was_restored_from_it(tmp_path: Path) -> None:
    """Below the restored end it names everybody, above only those whom the log's broker knows. No snapshot brings them back."""
    end_offset = archived_states(archived())["orders-0"].segments[1].end_offset
    before = copy_partitions(tmp_path / "before", "orders-0")
    remove_offsets(before / "orders-0", lambda offset: offset <= end_offset)
    (before / "orders-0" / f"{end_offset:020d}.log").write_bytes(b"")
    for suffix in ("index", "timeindex"):
        (before / "orders-0" / f"{end_offset:020d}.{suffix}").unlink()
    store = MemoryStore()
    with tools_for(before, store, tmp_path / "before" / "state") as context:
        archive(context, before, "orders")
    found = log_written_on(tmp_path, store)
    with tools_for(found.parent, store, tmp_path / "state") as context:
        assert archive(context, found.parent, "orders").exit_code == 0
    settings = StoreSettings(url=str(tmp_path / "archive"))
    for key, content in store.objects.items():
        path = tmp_path / "archive" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    targets = archive_targets(settings, SystemClock(), TopicFilter())
    assert results(targets) == ["equal"] * 4
    assert rebuild(targets, tmp_path / "out", LocalEngine(1), FORGETTING).exit_code == 0
    for offset in [offset for offset in snapshots_in(found) if offset > end_offset]:
        (path,) = (tmp_path / "out").rglob(f"{offset:020d}.snapshot")
        assert read_snapshot(path.read_bytes()) == read_snapshot((found / path.name).read_bytes())


def test_so_is_an_archive_of_it_that_was_compacted(tmp_path: Path) -> None:
    """No segment is joined over the restored end: its snapshot would not name who wrote its first records."""
    log_dir, settings = copy_partitions(tmp_path, "orders-0"), StoreSettings(url=str(tmp_path / "archive"))
    batches = {
        base: build_batch(
            [Record(base, FORGETTING.now_ms - 60_000, b"%d" % base, b"v")],
            leader_epoch=LEADER_EPOCH,
            producer_id=1000 + base,
            producer_epoch=0,
            base_sequence=0,
        )
        for base in range(4)
    }
    roll(log_dir, {base: (batch,) for base, batch in batches.items()} | {4: ()}, 4)
    (log_dir / "orders-0" / NAME).write_bytes(dropped_note(2))
    table = ProducerTable.blank(2)
    for end_offset in range(1, 5):
        if end_offset > 2:
            (columns,) = scan_bytes(batches[end_offset - 1])
            table, _ = replay(table, columns.facts())
        (log_dir / "orders-0" / f"{end_offset:020d}.snapshot").write_bytes(table.to_snapshot())
    store = open_store(settings)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir, "orders").exit_code == 0
    targets = archive_targets(settings, SystemClock(), TopicFilter())
    assert results(targets) == ["equal"] * 4
    (lineage,) = find_all_lineages(store)
    (result,) = ArchiveCompactor(settings, LocalEngine(), SystemClock(), tmp_path).compact(
        [CompactionRequest(lineage.root, CompactionRules(FORGETTING.now_ms))]
    )
    assert [(output.base_offset, output.end_offset) for output in result.outputs] == [(0, 2), (2, 4)]
    targets = archive_targets(settings, SystemClock(), TopicFilter())
    assert results(targets) == ["equal"] * 2
    assert rebuild(targets, tmp_path / "out", LocalEngine(1), FORGETTING).exit_code == 0
    (path,) = (tmp_path / "out").rglob("*4.snapshot")
    assert [entry.producer_id for entry in read_snapshot(path.read_bytes())] == [1002, 1003]


def test_rebuild_gives_what_the_broker_wrote(directory: Path, tmp_path: Path) -> None:
    assert rebuild(on_disk(directory), tmp_path / "out", LocalEngine(1), FORGETTING).exit_code == 0
    offsets = snapshots_in(tmp_path / "out")
    assert offsets == snapshots_in(directory)
    for offset in offsets:
        ours, theirs = (
            read_snapshot((path / f"{offset:020d}.snapshot").read_bytes()) for path in (tmp_path / "out", directory)
        )
        assert ours == theirs


@pytest.mark.parametrize("replace_empty", [False, True])
def test_heal_brings_nobody_back(directory: Path, replace_empty: bool) -> None:
    written = {offset: (directory / f"{offset:020d}.snapshot").read_bytes() for offset in snapshots_in(directory)}
    first, end, above, _ = written
    for offset in (first, above):
        (directory / f"{offset:020d}.snapshot").unlink()
    report = healed(directory.parent, replace_empty=replace_empty, now_ms=NOW_MS)
    (healing,) = report.healings
    assert (healing.created, healing.replaced, healing.proven_wrong, healing.mismatches) == ([first, above], [], [], [])
    after = {offset: (directory / f"{offset:020d}.snapshot").read_bytes() for offset in snapshots_in(directory)}
    assert after[first] == after[end] == EMPTY_SNAPSHOT
    assert read_snapshot(after[above]) == read_snapshot(written[above])


def test_a_snapshot_that_is_none_is_replaced_by_an_empty_one(directory: Path) -> None:
    first = snapshots_in(directory)[0]
    (directory / f"{first:020d}.snapshot").write_bytes(b"none")
    (healing,) = healed(directory.parent, replace_corrupt=True, now_ms=NOW_MS).healings
    assert healing.replaced == [first]
    assert (directory / f"{first:020d}.snapshot").read_bytes() == EMPTY_SNAPSHOT


def test_heal_without_the_note_knows_those_of_old(directory: Path) -> None:
    shutil.move(directory / NAME, directory.parent / "away")
    (healing,) = healed(directory.parent, replace_empty=True, now_ms=NOW_MS).healings
    assert healing.replaced == snapshots_in(directory)[:2]
