"""`heal --replay window` on disk: what it reads, what damage below the window does, and which snapshots it begins from."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from producer_state.snapshot import ProducerEntry, read_snapshot
from sidecar.config.topic_filter import TopicFilter
from sidecar.logformat.indexes.time_index import ENTRY
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.segment.producer_snapshot import state_at_log_start
from sidecar.snapshots import Replay
from sidecar.snapshots.jobs import Forgetting
from sidecar.snapshots.rebuild import Rebuilding, rebuild
from sidecar.snapshots.resolve_paths import find_targets
from sidecar.snapshots.starts import StartKind
from tests.cli.running import in_this_process
from tests.snapshot_files import write_snapshot
from tests.snapshots.log_dirs import DAY_MS, NOW_MS, data, healed, snapshots_in

EMPTY = write_snapshot([])
SEGMENTS = 12


def daily_log(parent: Path) -> Path:
    """A segment a day, each of two records of a producer of its own; the newest is of NOW_MS, the active one is empty."""
    log_dir = parent / "logs"
    directory = log_dir / "t-0"
    directory.mkdir(parents=True)
    for index in range(SEGMENTS):
        base, time_ms = 2 * index, NOW_MS - (SEGMENTS - 1 - index) * DAY_MS
        path = directory / f"{base:020d}.log"
        path.write_bytes(data(base, producer_id=100 + index, count=2, timestamp_ms=time_ms))
        path.with_suffix(".timeindex").write_bytes(np.array([(time_ms, 1)], ENTRY).tobytes())
    (directory / f"{2 * SEGMENTS:020d}.log").touch()
    (log_dir / ".lock").touch()
    (log_dir / ".kafka_cleanshutdown").touch()
    # No cleaner has been here.
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n0\n")
    return log_dir


def damage(log_dir: Path, base: int) -> None:
    log = log_dir / "t-0" / f"{base:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"\xff")


def drop(log_dir: Path, *offsets: int) -> None:
    for offset in offsets:
        (log_dir / "t-0" / f"{offset:020d}.snapshot").unlink()


def producers(log_dir: Path, offset: int) -> list[int]:
    content = (log_dir / "t-0" / f"{offset:020d}.snapshot").read_bytes()
    return [entry.producer_id for entry in read_snapshot(content)]


def size_of(log_dir: Path, *bases: int) -> int:
    return sum((log_dir / "t-0" / f"{base:020d}.log").stat().st_size for base in bases)


def test_where_only_the_newest_are_missing_one_segment_after_the_trusted_snapshot_is_read(tmp_path: Path) -> None:
    log_dir = daily_log(tmp_path)
    (whole,) = healed(log_dir).healings
    assert whole.read_bytes == size_of(log_dir, *range(0, 24, 2))
    before = {offset: producers(log_dir, offset) for offset in (22, 24)}
    drop(log_dir, 22, 24)
    (healing,) = healed(log_dir, replay=Replay.WINDOW).healings
    assert (healing.created, healing.exact, healing.problem, healing.note) == ([22, 24], True, "", "")
    assert [(start.offset, start.kind) for start in healing.starts] == [(20, StartKind.SNAPSHOT)]
    assert healing.read_bytes == size_of(log_dir, 20, 22)
    assert {offset: producers(log_dir, offset) for offset in (22, 24)} == before
    assert healing.not_compared == list(range(2, 22, 2))


def test_nothing_is_made_above_damage_where_no_snapshot_tells_of_open_transactions(tmp_path: Path) -> None:
    log_dir = daily_log(tmp_path)
    damage(log_dir, 4)
    report = healed(log_dir, replay=Replay.WINDOW)
    (healing,) = report.healings
    assert (report.exit_code, sorted(healing.created), snapshots_in(log_dir / "t-0")) == (3, [2, 4], [2, 4])
    assert healing.problem.startswith(f"snapshots above offset 4 cannot be created: {log_dir}")
    assert healing.problem.count("another replica") == 1
    assert "move the partition's directory away: the broker fetches it when it starts" in healing.problem
    assert "then the partition continues" not in healing.problem


def test_damage_below_the_window_keeps_nothing_above_it_from_being_made(tmp_path: Path) -> None:
    log_dir = daily_log(tmp_path)
    healed(log_dir)
    drop(log_dir, *range(2, 24, 2))
    damage(log_dir, 4)
    report = healed(log_dir, replay=Replay.WINDOW)
    (healing,) = report.healings
    # Below 8, the window of a day and the margins still reaches into the damaged segment.
    assert (report.exit_code, sorted(healing.created)) == (3, [2, 4, *range(10, 24, 2)])
    assert "snapshots above offset 4 and below 10 cannot be created" in healing.problem
    assert producers(log_dir, 12) == [104, 105]


def test_a_full_replay_makes_nothing_above_the_damage(tmp_path: Path) -> None:
    log_dir = daily_log(tmp_path)
    damage(log_dir, 4)
    healed(log_dir)
    assert snapshots_in(log_dir / "t-0") == [2, 4]


def test_a_brokers_snapshot_above_the_window_proves_that_no_old_transaction_is_open(tmp_path: Path) -> None:
    log_dir = daily_log(tmp_path)
    healed(log_dir)
    drop(log_dir, *range(2, 22, 2))
    damage(log_dir, 4)
    (healing,) = healed(log_dir, replay=Replay.WINDOW).healings
    assert sorted(healing.created) == [2, 4, *range(10, 22, 2)]
    assert (healing.exact, healing.note, healing.verified) == (True, "", [22])


def test_an_empty_snapshot_and_what_stems_from_it_are_not_trusted(tmp_path: Path) -> None:
    """A broker that found no snapshot wrote empty ones at 18 and 20, and at 22 what it had learned since."""
    log_dir = daily_log(tmp_path)
    healed(log_dir)
    right = producers(log_dir, 24)
    for offset, content in ((20, EMPTY), (22, write_snapshot([ProducerEntry(110, 0, 1, 21, 1, NOW_MS - DAY_MS)]))):
        (log_dir / "t-0" / f"{offset:020d}.snapshot").write_bytes(content)
    drop(log_dir, 24)
    (healing,) = healed(log_dir, replay=Replay.WINDOW, now_ms=NOW_MS).healings
    assert producers(log_dir, 24) == right == [110, 111]
    # The window begins at 20, but below 18 a transaction may have been opened that is still open.
    assert [(start.offset, start.kind) for start in healing.starts] == [(18, StartKind.SNAPSHOT)]
    assert healing.created == [24]


def test_a_snapshot_is_trusted_again_once_its_window_has_passed_the_empty_one(tmp_path: Path) -> None:
    log_dir = daily_log(tmp_path)
    healed(log_dir)
    (log_dir / "t-0" / f"{8:020d}.snapshot").write_bytes(EMPTY)
    drop(log_dir, 24)
    (healing,) = healed(log_dir, replay=Replay.WINDOW).healings
    assert [(start.offset, start.kind) for start in healing.starts] == [(22, StartKind.SNAPSHOT)]


@pytest.mark.parametrize("spoiled", [b"", b"\0" * 12, b"\xff" * 11])
def test_a_segment_whose_time_index_tells_nothing_is_read(tmp_path: Path, spoiled: bytes) -> None:
    log_dir = daily_log(tmp_path)
    for offset in range(2, 24, 2):
        (log_dir / "t-0" / f"{offset:020d}.snapshot").write_bytes(EMPTY)
    (log_dir / "t-0" / f"{6:020d}.timeindex").write_bytes(spoiled)
    (healing,) = healed(log_dir, replay=Replay.WINDOW).healings
    first = [start.offset for start in healing.starts]
    assert first[0] <= 6


def test_nothing_is_built_on_a_snapshot_that_the_replay_contradicts(tmp_path: Path) -> None:
    """The beginning is unknown, so that a trusted snapshot on the way would tell more; this one does not stand up."""
    log_dir = daily_log(tmp_path)
    (log_dir / "t-0" / f"{0:020d}.log").unlink()
    wrong = write_snapshot([ProducerEntry(109, 0, 99, 19, 1, NOW_MS)])
    (log_dir / "t-0" / f"{20:020d}.snapshot").write_bytes(wrong)
    report = healed(log_dir, replay=Replay.WINDOW)
    (healing,) = report.healings
    assert (report.exit_code, healing.created, healing.withheld) == (4, [], [*range(4, 20, 2), 22, 24])
    assert snapshots_in(log_dir / "t-0") == [20]


def test_the_command_reads_the_window_unless_all_is_asked_for(tmp_path: Path) -> None:
    log_dir = daily_log(tmp_path)
    healed(log_dir)
    drop(log_dir, 24)
    window = in_this_process("snapshots", "heal", "--json", "--producer-id-expiration-ms", DAY_MS, log_dir)
    drop(log_dir, 24)
    full = in_this_process(
        "snapshots", "heal", "--json", "--replay", "full", "--producer-id-expiration-ms", DAY_MS, log_dir
    )
    read_window, read_full = json.loads(window.out), json.loads(full.out)
    (of_window,), (of_full,) = read_window["partitions"], read_full["partitions"]
    assert (read_window["replay"], read_full["replay"]) == ("window", "full")
    assert of_window["replayed_from"] == [{"offset": 22, "start": "snapshot"}]
    assert of_full["replayed_from"] == [{"offset": 0, "start": "log start"}]
    assert (of_window["read_bytes"], of_full["read_bytes"]) == (
        size_of(log_dir, 22),
        size_of(log_dir, *range(0, 24, 2)),
    )


# --- exact: one rule


@pytest.mark.parametrize("at_start", [None, EMPTY], ids=["no snapshot", "an empty one"])
def test_rebuild_heal_and_backfill_agree_that_a_beginning_is_unknown(tmp_path: Path, at_start: bytes | None) -> None:
    """The first segment was deleted, and no snapshot tells what was in it."""
    log_dir = daily_log(tmp_path)
    directory = log_dir / "t-0"
    without_first_segment(log_dir)
    if at_start is not None:
        (directory / f"{2:020d}.snapshot").write_bytes(at_start)
    log = healed(log_dir, dry_run=True).healings[0].plan.log
    assert not state_at_log_start(log.files, 2).exact  # Where `backfill` and `run` begin.
    for replay in Replay:
        targets = find_targets([directory], TopicFilter())
        report = rebuild(targets, tmp_path / replay, LocalEngine(1), Forgetting(NOW_MS, DAY_MS), replay=replay)
        (rebuilt,) = report.partitions
        assert exactness(rebuilt) == {False}
    (healing,) = healed(log_dir).healings
    assert (healing.exact, "log's start 2" in healing.note) == (False, True)


def without_first_segment(log_dir: Path) -> None:
    for suffix in ("log", "timeindex"):
        (log_dir / "t-0" / f"{0:020d}.{suffix}").unlink()


def named_by_the_cleaner(log_dir: Path) -> None:
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 10\n")


@pytest.mark.parametrize("spoil", [without_first_segment, named_by_the_cleaner])
def test_what_stems_from_a_file_of_an_earlier_run_is_not_called_exact(
    tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    log_dir = daily_log(tmp_path)
    spoil(log_dir)
    healed(log_dir, replay=Replay.WINDOW)
    drop(log_dir, 24)
    (healing,) = healed(log_dir, replay=Replay.WINDOW).healings
    assert [(start.offset, start.kind) for start in healing.starts] == [(22, StartKind.SNAPSHOT)]
    assert (healing.created, healing.exact) == ([24], False)
    assert "a file does not record whether it is exact" in healing.note


@pytest.mark.parametrize("whole", [True, False], ids=["from 0", "the first segment deleted"])
def test_both_replays_call_the_same_exact(tmp_path: Path, whole: bool) -> None:
    log_dir = daily_log(tmp_path)
    if not whole:
        without_first_segment(log_dir)
    healed(log_dir)
    drop(log_dir, 12, 24)
    targets = find_targets([log_dir / "t-0"], TopicFilter())
    found = [
        rebuild(targets, tmp_path / replay, LocalEngine(1), Forgetting(NOW_MS, DAY_MS), replay=replay).partitions[0]
        for replay in Replay
    ]
    by_window, by_full = ([(each.offset, each.exact) for each in rebuilt.snapshots] for rebuilt in found)
    assert by_window == by_full
    assert {exact for _, exact in by_full} == {whole}


def exactness(rebuilt: Rebuilding) -> set[bool]:
    assert len(rebuilt.snapshots) == SEGMENTS - 1
    return {snapshot.exact for snapshot in rebuilt.snapshots}
