"""A transaction that is open never expires: no snapshot is written that lacks one, and no witness excuses one that does."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer_state.snapshot import ProducerEntry, read_snapshot
from producer_state.table import ProducerTable
from sidecar.config.topic_filter import TopicFilter
from sidecar.logformat.bodies.building import build_batch, build_marker
from sidecar.logformat.bodies.record import Record
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.snapshots import Replay
from sidecar.snapshots.heal_plan import HealReport
from sidecar.snapshots.jobs import Forgetting
from sidecar.snapshots.rebuild import rebuild
from sidecar.snapshots.resolve_paths import find_targets
from sidecar.snapshots.starts import open_below
from tests.cli.running import in_this_process
from tests.snapshot_files import write_snapshot
from tests.snapshots.log_dirs import DAY_MS, NOW_MS, data, healed, snapshots_in
from tests.snapshots.test_window_heal import EMPTY, SEGMENTS, daily_log, damage, drop, producers, size_of

UNDECIDED = 500
"""A producer that opens a transaction at offset 2, ten days ago, and does not end it."""


def time_of(offset: int) -> int:
    return NOW_MS - (SEGMENTS - 1 - offset // 2) * DAY_MS


def transactional(offset: int, count: int = 2) -> bytes:
    records = [Record(offset + index, time_of(offset), b"k", b"v") for index in range(count)]
    return build_batch(records, producer_id=UNDECIDED, producer_epoch=0, base_sequence=offset, transactional=True)


def log_of(log_dir: Path, base: int) -> Path:
    return log_dir / "t-0" / f"{base:020d}.log"


def snapshot_of(log_dir: Path, offset: int) -> Path:
    return log_dir / "t-0" / f"{offset:020d}.snapshot"


def open_at(log_dir: Path, offset: int) -> list[tuple[int, int]]:
    entries = read_snapshot(snapshot_of(log_dir, offset).read_bytes())
    return [
        (entry.producer_id, entry.current_txn_first_offset)
        for entry in entries
        if entry.current_txn_first_offset is not None
    ]


@pytest.fixture(name="log_dir")
def _log_dir(tmp_path: Path) -> Path:
    """Without snapshots."""
    log_dir = daily_log(tmp_path)
    log_of(log_dir, 2).write_bytes(transactional(2))
    return log_dir


def by_window(log_dir: Path, **options: bool) -> HealReport:
    return healed(log_dir, replay=Replay.WINDOW, **options)


def test_above_empty_snapshots_the_replay_begins_at_the_newest_one_that_tells(log_dir: Path) -> None:
    healed(log_dir)
    right = snapshot_of(log_dir, 24).read_bytes()
    for offset in range(4, 24, 2):
        snapshot_of(log_dir, offset).write_bytes(EMPTY)
    drop(log_dir, 24)
    report = by_window(log_dir)
    (healing,) = report.healings
    assert (report.exit_code, healing.created, healing.wrong_empty) == (4, [24], list(range(4, 24, 2)))
    assert (snapshot_of(log_dir, 24).read_bytes(), open_at(log_dir, 24)) == (right, [(UNDECIDED, 2)])
    assert healing.read_bytes == size_of(log_dir, *range(2, 24, 2))


def test_above_corrupt_snapshots_the_replay_begins_at_the_newest_one_that_tells(log_dir: Path) -> None:
    healed(log_dir)
    for offset in (20, 22):
        snapshot_of(log_dir, offset).write_bytes(b"\0" * 64)
    drop(log_dir, 24)
    (healing,) = by_window(log_dir).healings
    assert ([start.offset for start in healing.starts], open_at(log_dir, 24)) == ([18], [(UNDECIDED, 2)])
    assert by_window(log_dir, replace_corrupt=True).exit_code == 0
    assert healed(log_dir).exit_code == 0


def test_without_any_snapshot_that_tells_the_whole_log_is_read(log_dir: Path) -> None:
    for offset in range(2, 24, 2):
        snapshot_of(log_dir, offset).write_bytes(EMPTY)
    (healing,) = by_window(log_dir).healings
    assert (healing.read_bytes, open_at(log_dir, 24)) == (size_of(log_dir, *range(0, 24, 2)), [(UNDECIDED, 2)])


def test_above_damage_a_witness_proves_that_the_transaction_was_open(log_dir: Path) -> None:
    healed(log_dir)
    right = {offset: snapshot_of(log_dir, offset).read_bytes() for offset in range(10, 22, 2)}
    drop(log_dir, *range(2, 22, 2))
    damage(log_dir, 4)
    (healing,) = by_window(log_dir).healings
    assert (sorted(healing.created), healing.verified) == ([2, 4, *right], [22])
    assert {offset: snapshot_of(log_dir, offset).read_bytes() for offset in right} == right


def test_above_damage_nothing_is_made_while_the_last_batch_is_below_the_window(log_dir: Path) -> None:
    """The producer has written since, so that the witness does not name its batch below the window."""
    log_of(log_dir, 12).write_bytes(transactional(12))
    healed(log_dir)
    right = {offset: snapshot_of(log_dir, offset).read_bytes() for offset in (14, 16, 18, 20)}
    drop(log_dir, *range(2, 22, 2))
    damage(log_dir, 4)
    report = by_window(log_dir)
    (healing,) = report.healings
    assert (report.exit_code, sorted(healing.created), healing.withheld) == (3, [2, 4, *right], [10, 12])
    assert {offset: snapshot_of(log_dir, offset).read_bytes() for offset in right} == right
    assert "a transaction that began below it may be open there" in healing.problem
    assert not healing.exact


def ended_at_15(log_dir: Path) -> None:
    marker = build_marker(
        15, producer_id=UNDECIDED, producer_epoch=0, coordinator_epoch=1, commit=True, timestamp_ms=time_of(14)
    )
    log_of(log_dir, 14).write_bytes(data(14, producer_id=107, timestamp_ms=time_of(14)) + marker)


def test_above_damage_the_snapshots_are_made_in_which_the_producer_has_expired(log_dir: Path) -> None:
    """Below the marker nothing tells what is open, and above it nothing tells the last batch, while a broker knows the producer."""
    ended_at_15(log_dir)
    healed(log_dir)
    right = {offset: snapshot_of(log_dir, offset).read_bytes() for offset in (20,)}
    drop(log_dir, *range(2, 22, 2))
    damage(log_dir, 4)
    damage(log_dir, 2)
    report = by_window(log_dir)
    (healing,) = report.healings
    assert (report.exit_code, healing.withheld) == (3, [10, 12, 14, 16, 18])
    assert {offset: snapshot_of(log_dir, offset).read_bytes() for offset in right} == right


def test_above_damage_the_coordinator_of_a_transaction_that_began_in_the_window_is_known(tmp_path: Path) -> None:
    """Its producer's last marker lies below the damage. A zombie of an older coordinator must stay fenced."""
    log_dir = daily_log(tmp_path)
    marker = build_marker(
        3, producer_id=UNDECIDED, producer_epoch=0, coordinator_epoch=7, commit=True, timestamp_ms=time_of(2)
    )
    log_of(log_dir, 2).write_bytes(transactional(2, 1) + marker)
    log_of(log_dir, 12).write_bytes(transactional(12))
    healed(log_dir)
    right = {offset: snapshot_of(log_dir, offset).read_bytes() for offset in range(10, 22, 2)}
    assert open_at(log_dir, 20) == [(UNDECIDED, 12)]
    drop(log_dir, *range(2, 22, 2))
    damage(log_dir, 4)
    (healing,) = by_window(log_dir).healings
    assert (sorted(healing.created), healing.verified, healing.exact) == ([2, 4, *right], [22], True)
    assert {offset: snapshot_of(log_dir, offset).read_bytes() for offset in right} == right


def test_rebuild_does_not_write_what_may_lack_a_transaction(log_dir: Path, tmp_path: Path) -> None:
    ended_at_15(log_dir)
    healed(log_dir)
    drop(log_dir, *range(2, 22, 2))
    damage(log_dir, 2)
    damage(log_dir, 4)
    targets = find_targets([log_dir / "t-0"], TopicFilter())
    report = rebuild(targets, tmp_path / "out", LocalEngine(1), Forgetting(NOW_MS, DAY_MS))
    (rebuilt,) = report.partitions
    assert report.exit_code == 3
    assert snapshots_in(tmp_path / "out") == [snapshot.offset for snapshot in rebuilt.snapshots] == [2, 20, 22, 24]
    assert "a transaction that began below it may be open there" in rebuilt.problem


def right_at(log_dir: Path, *offsets: int) -> dict[int, bytes]:
    return {offset: snapshot_of(log_dir, offset).read_bytes() for offset in offsets}


def delete_first_segments(log_dir: Path) -> None:
    """As retention does: the one in which the transaction began is gone."""
    for base in (0, 2):
        log_of(log_dir, base).unlink()


@pytest.mark.parametrize("replay", Replay)
def test_a_transaction_of_which_only_a_snapshot_above_tells_is_in_all_below_it(log_dir: Path, replay: Replay) -> None:
    healed(log_dir)
    made = [*range(6, 22, 2), 24]
    right = right_at(log_dir, *made)
    drop(log_dir, *range(2, 22, 2), 24)
    delete_first_segments(log_dir)
    report = healed(log_dir, replay=replay)
    (healing,) = report.healings
    assert (report.exit_code, sorted(healing.created), healing.withheld, healing.verified) == (0, made, [], [22])
    assert right_at(log_dir, *made) == right
    assert (healing.exact, "log's start 4" in healing.note) == (False, True)


@pytest.mark.parametrize("replay", Replay)
def test_the_last_batch_of_such_a_transaction_is_known_once_it_is_in_the_log(log_dir: Path, replay: Replay) -> None:
    log_of(log_dir, 12).write_bytes(transactional(12))
    healed(log_dir)
    right = right_at(log_dir, *range(14, 22, 2))
    drop(log_dir, *range(2, 22, 2))
    delete_first_segments(log_dir)
    (healing,) = healed(log_dir, replay=replay).healings
    assert (sorted(healing.created), healing.withheld, healing.mismatches) == (list(range(6, 22, 2)), [], [])
    assert all(open_at(log_dir, offset) == [(UNDECIDED, 2)] for offset in healing.created)
    assert right_at(log_dir, *right) == right


def test_damage_does_not_hide_a_transaction_of_which_only_a_snapshot_above_it_tells(log_dir: Path) -> None:
    healed(log_dir)
    right = right_at(log_dir, *range(6, 14, 2))
    drop(log_dir, *range(2, 22, 2))
    delete_first_segments(log_dir)
    damage(log_dir, 12)
    report = by_window(log_dir)
    assert (report.exit_code, right_at(log_dir, *right)) == (3, right)


@pytest.mark.parametrize("replay", Replay)
def test_rebuild_knows_a_transaction_of_which_only_a_snapshot_tells(
    log_dir: Path, tmp_path: Path, replay: Replay
) -> None:
    healed(log_dir)
    right = right_at(log_dir, *range(6, 26, 2))
    drop(log_dir, *range(2, 22, 2))
    delete_first_segments(log_dir)
    targets = find_targets([log_dir / "t-0"], TopicFilter())
    report = rebuild(targets, tmp_path / "out", LocalEngine(1), Forgetting(NOW_MS, DAY_MS), replay=replay)
    (rebuilt,) = report.partitions
    assert {snapshot.offset: snapshot.path.read_bytes() for snapshot in rebuilt.snapshots} == right
    assert {(snapshot.exact, snapshot.open_transactions) for snapshot in rebuilt.snapshots} == {(False, 1)}


@pytest.mark.parametrize(
    ("survives", "made", "exit_code"),
    [(None, [], 3), (12, [*range(6, 20, 2), 24], 4)],
    ids=["none", "one of its batches"],
)
def test_an_untrusted_witness_does_not_confirm_what_lacks_its_transaction(
    log_dir: Path, survives: int | None, made: list[int], exit_code: int
) -> None:
    """An empty snapshot stands below the one that names it. What is left of the transaction in the log is open there."""
    if survives is not None:
        log_of(log_dir, survives).write_bytes(transactional(survives))
    healed(log_dir)
    drop(log_dir, *range(2, 20, 2), 24)
    snapshot_of(log_dir, 20).write_bytes(EMPTY)
    delete_first_segments(log_dir)
    report = healed(log_dir)
    (healing,) = report.healings
    assert (report.exit_code, sorted(healing.created), healing.mismatches) == (exit_code, made, [])
    assert healing.withheld == [offset for offset in (*range(6, 20, 2), 24) if offset not in made]
    named = "22: names open transactions that began below the log start (producers 500)"
    assert (named in healing.problem) == (survives is None)


def test_a_transaction_that_has_ended_keeps_nothing_above_from_being_made(log_dir: Path) -> None:
    """The snapshot at 20 does not know its producer any more."""
    ended_at_15(log_dir)
    healed(log_dir)
    right = right_at(log_dir, 6, 8, 18, 22, 24)
    drop(log_dir, 4, *right)
    delete_first_segments(log_dir)
    (healing,) = by_window(log_dir).healings
    assert (sorted(healing.created), healing.withheld) == (list(right), [])
    assert right_at(log_dir, *right) == right


def test_the_snapshot_at_the_logs_start_tells_what_was_open_below_a_window(log_dir: Path) -> None:
    marker = build_marker(
        21, producer_id=UNDECIDED, producer_epoch=0, coordinator_epoch=1, commit=True, timestamp_ms=time_of(20)
    )
    log_of(log_dir, 20).write_bytes(data(20, producer_id=110, timestamp_ms=time_of(20)) + marker)
    healed(log_dir)
    right = right_at(log_dir, 20)
    delete_first_segments(log_dir)
    for offset in range(6, 20, 2):
        snapshot_of(log_dir, offset).write_bytes(b"\0" * 64)
    drop(log_dir, 2, 20)
    (healing,) = by_window(log_dir).healings
    assert (healing.created, open_at(log_dir, 20), healing.exact) == ([20], [(UNDECIDED, 2)], True)
    assert right_at(log_dir, 20) == right


def test_on_an_idle_topic_empty_snapshots_are_reported_and_replaced(log_dir: Path) -> None:
    """All producers have expired but the one in a transaction."""
    later_ms = NOW_MS + 5 * DAY_MS
    for offset in range(2, 26, 2):
        snapshot_of(log_dir, offset).write_bytes(EMPTY)
    plain = in_this_process("snapshots", "heal", "--now-ms", later_ms, "--producer-id-expiration-ms", DAY_MS, log_dir)
    assert "12 existing snapshots were not compared with the log" in plain.err
    assert "12 of these are empty, and wrong if a transaction is open there; --replace-empty compares them" in plain.err
    report = healed(log_dir, replay=Replay.WINDOW, replace_empty=True, now_ms=later_ms)
    (healing,) = report.healings
    assert (report.exit_code, sorted(healing.replaced)) == (0, list(range(4, 26, 2)))
    assert open_at(log_dir, 24) == [(UNDECIDED, 2)]
    assert healed(log_dir, replay=Replay.FULL, now_ms=later_ms).exit_code == 0


def test_what_is_not_compared_is_reported_where_nothing_is_missing(tmp_path: Path) -> None:
    log_dir = daily_log(tmp_path)
    healed(log_dir)
    snapshot_of(log_dir, 20).write_bytes(write_snapshot([ProducerEntry(999, 0, 99, 19, 1, NOW_MS)]))
    report = by_window(log_dir)
    assert (report.exit_code, report.healings[0].not_compared) == (0, list(range(2, 26, 2)))
    assert report.as_json()["counts"]["not_compared"] == SEGMENTS
    reported = in_this_process("snapshots", "heal", "--producer-id-expiration-ms", DAY_MS, log_dir)
    assert "12 existing snapshots were not compared with the log; --replay full compares all" in reported.err
    assert producers(log_dir, 20) == [999]


def test_where_a_window_contradicts_itself_the_snapshots_above_are_named_truly(log_dir: Path) -> None:
    healed(log_dir)
    drop(log_dir, *range(2, 22, 2), 24)
    damage(log_dir, 4)
    # A plain batch inside of the producer's open transaction.
    log_of(log_dir, 12).write_bytes(transactional(12))
    log_of(log_dir, 14).write_bytes(data(14, producer_id=UNDECIDED, count=2, timestamp_ms=time_of(14)))
    (healing,) = by_window(log_dir).healings
    assert "snapshots above offset 6 and below 24 cannot be created" in healing.problem
    assert sorted(healing.created) == [2, 4, 24]


def test_a_batch_at_the_offset_itself_was_written_since() -> None:
    witness = ProducerTable.from_entries(20, [ProducerEntry(UNDECIDED, 0, 5, 10, 0, NOW_MS, 2, 3)])
    rows, late = open_below(witness, 10)
    assert (late.tolist(), rows["last_offset"].tolist()) == ([UNDECIDED], [-1])
    rows, late = open_below(witness, 11)
    assert (late.tolist(), rows["last_offset"].tolist()) == ([], [10])


@pytest.mark.parametrize(("last_offset", "is_trusted"), [(21, True), (22, False)])
def test_no_replay_begins_at_a_snapshot_that_names_its_own_offset(
    last_offset: int, is_trusted: bool, log_dir: Path
) -> None:
    healed(log_dir)
    drop(log_dir, 24)
    entry = ProducerEntry(1, 0, last_offset, last_offset, 0, time_of(20))
    snapshot_of(log_dir, 22).write_bytes(write_snapshot([entry]))
    (healing,) = by_window(log_dir).healings
    assert (healing.starts[0].offset == 22) is is_trusted
