"""`rebuild` and `check` on built directories and on damaged ones, here and in a pool of processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from producer_state.snapshot import read_snapshot
from sidecar.config.topic_filter import TopicFilter
from sidecar.errors import SettingsError
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.snapshots.check import Checking, CheckReport, check
from sidecar.snapshots.jobs import Forgetting
from sidecar.snapshots.rebuild import RebuildReport, rebuild
from sidecar.snapshots.resolve_paths import find_targets
from tests.golden import golden, wall_clock_ms
from tests.snapshot_files import write_snapshot
from tests.snapshots.log_dirs import DAY_MS, NOW_MS, data, healed, log_dir_of, snapshots_in, tree

KEEP_ALL = Forgetting(NOW_MS, None)


def rebuilt(*paths: Path, out: Path, forgetting: Forgetting = KEEP_ALL, workers: int = 1) -> RebuildReport:
    return rebuild(find_targets(paths, TopicFilter()), out, LocalEngine(workers), forgetting)


def checked(*paths: Path, forgetting: Forgetting = KEEP_ALL, internal_topics: bool = False) -> CheckReport:
    targets = find_targets(paths, TopicFilter(internal=internal_topics))
    return check(targets, LocalEngine(1), forgetting)


def results(checking: Checking) -> dict[int, str]:
    return {snapshot.offset: str(snapshot.result) for snapshot in checking.snapshots}


def test_a_partition_directory_goes_into_out_itself_and_a_log_dir_into_folders(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, partitions=2)
    rebuilt(log_dir / "t-0", out=tmp_path / "one")
    rebuilt(log_dir, out=tmp_path / "all")
    assert snapshots_in(tmp_path / "one") == snapshots_in(tmp_path / "all" / "t-0") == [2, 4, 6]
    assert snapshots_in(tmp_path / "all" / "t-1") == [2, 4, 6]
    (entry,) = read_snapshot((tmp_path / "one" / f"{4:020d}.snapshot").read_bytes())
    assert (entry.producer_id, entry.last_sequence, entry.last_offset, entry.offset_delta) == (1, 3, 3, 1)


def test_logs_of_one_name_are_not_written_into_one_directory(tmp_path: Path) -> None:
    logs = [log_dir_of(tmp_path / name, partitions=2) / "t-0" for name in ("one", "other")]
    logs.append(logs[0].with_name("t-1"))
    report = rebuilt(*logs, out=tmp_path / "out")
    assert report.exit_code == 3
    assert [
        partition.problem.startswith(f"{partition.log.place}: one of 2 logs of t-0") for partition in report.partitions
    ] == [
        True,
        True,
        False,
    ]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["t-1"]
    assert snapshots_in(tmp_path / "out" / "t-1") == [2, 4, 6]


def test_several_workers_write_the_same_bytes(tmp_path: Path) -> None:
    log_dirs = [golden(version) / "logs" for version in ("2.7.2", "3.9.1", "4.3.0")]
    for log_dir in log_dirs:
        for workers in (1, 2):
            rebuilt(log_dir, out=tmp_path / log_dir.parent.name / str(workers), workers=workers)
        alone, pooled = (tree(tmp_path / log_dir.parent.name / str(workers)) for workers in (1, 2))
        assert alone == pooled
        assert len(alone) > 25


def test_every_snapshot_of_real_brokers_is_found_right(tmp_path: Path) -> None:
    for version in ("2.7.2", "3.9.1", "4.3.0"):
        forgetting = Forgetting(wall_clock_ms(version), DAY_MS)
        report = checked(golden(version) / "logs", forgetting=forgetting, internal_topics=True)
        found = [snapshot for partition in report.partitions for snapshot in partition.snapshots]
        assert report.exit_code == (3 if report.missing else 0)
        assert {str(snapshot.result) for snapshot in found} <= {"equal", "missing"}
        assert sum(snapshot.result == "equal" for snapshot in found) >= 49
        cleaned = checked(golden(version) / "compacted", forgetting=forgetting)
        for partition in cleaned.partitions:
            for snapshot in partition.snapshots:
                assert snapshot.result in {"equal", "permissible", "missing"}
                assert snapshot.result != "permissible" or "compaction" in snapshot.what or "no longer" in snapshot.what


def test_wrong_corrupt_misnamed_and_unknown_snapshots(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=5)
    directory = log_dir / "t-0"
    rebuilt(directory, out=tmp_path / "out")
    right = {offset: (tmp_path / "out" / f"{offset:020d}.snapshot").read_bytes() for offset in (2, 4, 6, 8)}

    def put(offset: int, content: bytes) -> None:
        (directory / f"{offset:020d}.snapshot").write_bytes(content)

    put(0, write_snapshot([]))
    put(2, right[2])
    put(4, right[4][:-1] + b"\x00")
    put(5, right[4])
    put(6, right[4])
    put(10, right[8])
    put(11, right[8])
    report = checked(directory)
    (partition,) = report.partitions
    expected = {
        0: "unknown",
        2: "equal",
        4: "corrupt",
        5: "stray",
        6: "wrong",
        8: "missing",
        10: "stray",
        11: "corrupt",
    }
    assert results(partition) == expected
    what = {snapshot.offset: snapshot.what for snapshot in partition.snapshots}
    assert "checksum" in what[4]
    assert "inside the batch [4, 5]" in what[5]
    assert "last_offset 3, according to the log 5" in what[6]
    assert "the log ends at 10" in what[11]
    assert report.exit_code == 4


def test_the_end_of_the_active_segment_can_be_checked_while_it_grows(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=2)
    directory = log_dir / "t-0"
    active = directory / f"{2:020d}.log"
    with active.open("ab") as log:
        log.write(data(4, sequence=4, count=2))
    entry = {"producer_id": 1, "producer_epoch": 0, "last_timestamp_ms": NOW_MS, "offset_delta": 1}
    (directory / f"{4:020d}.snapshot").write_bytes(write_snapshot([_entry(last_sequence=3, last_offset=3, **entry)]))
    with active.open("ab") as log:
        log.write(data(6, sequence=6, count=2)[:50])  # a batch that is just being written
    assert results(checked(directory).partitions[0]) == {2: "missing", 4: "equal"}


def _entry(**fields: int) -> Any:
    from producer_state.snapshot import ProducerEntry

    return ProducerEntry(**fields)


def test_producers_that_the_broker_had_already_forgotten_may_be_missing(tmp_path: Path) -> None:
    """An idle topic: its segment is rolled days after the last write; by the newest batch alone nobody would be expired."""
    log_dir = log_dir_of(tmp_path, segments=2)
    path = log_dir / "t-0" / f"{2:020d}.snapshot"
    path.write_bytes(write_snapshot([]))
    forgetting = Forgetting(NOW_MS + 9 * DAY_MS, DAY_MS)
    for written_ms, result in ((NOW_MS + DAY_MS // 2, "wrong"), (NOW_MS + DAY_MS, "permissible")):
        os.utime(path, ns=(written_ms * 1_000_000, written_ms * 1_000_000))
        assert results(checked(log_dir, forgetting=forgetting).partitions[0]) == {2: result}


def test_the_snapshot_at_the_log_start_tells_of_producers_whose_batches_are_gone(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=4)
    rebuilt(log_dir / "t-0", out=tmp_path / "whole")
    directory = log_dir / "t-0"
    old = _entry(producer_id=77, producer_epoch=3, last_sequence=9, last_offset=1, last_timestamp_ms=NOW_MS)
    (directory / f"{0:020d}.log").unlink()
    before = read_snapshot((tmp_path / "whole" / f"{2:020d}.snapshot").read_bytes())
    (directory / f"{2:020d}.snapshot").write_bytes(write_snapshot([*before, old]))
    (partition,) = rebuilt(directory, out=tmp_path / "rest").partitions
    assert (partition.start_offset, partition.from_snapshot) == (2, True)
    for offset in (4, 6):
        whole, rest = (
            read_snapshot((tmp_path / out / f"{offset:020d}.snapshot").read_bytes()) for out in ("whole", "rest")
        )
        assert rest == (*whole, old)


def test_a_corrupt_batch_ends_the_replay_and_is_named(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=5)
    log = log_dir / "t-0" / f"{4:020d}.log"
    log.write_bytes(log.read_bytes()[:-1] + b"\xff")
    report = rebuilt(log_dir, out=tmp_path / "out")
    assert snapshots_in(tmp_path / "out" / "t-0") == [2, 4]
    assert report.exit_code == 3
    assert "checksum" in report.partitions[0].problem
    assert str(log) in report.partitions[0].problem
    (log_dir / "t-0" / f"{8:020d}.snapshot").write_bytes(write_snapshot([]))
    assert results(checked(log_dir).partitions[0]) == {2: "missing", 4: "missing", 6: "missing", 8: "unknown"}


def test_now_ms_leaves_out_who_is_expired_at_that_very_moment(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=2)
    for as_of_ms, count in ((NOW_MS + DAY_MS - 1, 1), (NOW_MS + DAY_MS, 0)):
        rebuilt(log_dir / "t-0", out=tmp_path / "out", forgetting=Forgetting(as_of_ms, DAY_MS, as_of_ms))
        assert len(read_snapshot((tmp_path / "out" / f"{2:020d}.snapshot").read_bytes())) == count


@pytest.mark.parametrize("where", ["logs", "logs/out", "logs/t-0", "logs/t-0/out"])
def test_out_is_never_in_a_brokers_directory(tmp_path: Path, where: str) -> None:
    log_dir = log_dir_of(tmp_path)
    with pytest.raises(SettingsError, match="never writes to"):
        rebuilt(log_dir, out=tmp_path / where)


def test_paths_that_are_no_broker_directories(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no such directory"):
        find_targets([tmp_path / "absent"], TopicFilter())
    with pytest.raises(SettingsError, match="not a partition directory"):
        find_targets([tmp_path], TopicFilter())
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / f"{0:020d}.log").touch()
    with pytest.raises(SettingsError, match="<topic>-<number>"):
        find_targets([tmp_path / "copy"], TopicFilter())


def test_producers_that_delete_records_took_may_be_missing(tmp_path: Path) -> None:
    """DeleteRecords moves the log start inside a segment; a broker that recovers replays from there."""
    log_dir = log_dir_of(tmp_path, segments=2)
    first = log_dir / "t-0" / f"{0:020d}.log"
    first.write_bytes(data(0, producer_id=8) + data(1, producer_id=9))
    path = log_dir / "t-0" / f"{2:020d}.snapshot"
    path.write_bytes(
        write_snapshot(
            [_entry(producer_id=9, producer_epoch=0, last_sequence=0, last_offset=1, last_timestamp_ms=NOW_MS)]
        )
    )
    for log_start_offset, result in ((0, "wrong"), (1, "permissible")):
        (log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {log_start_offset}\n")
        assert results(checked(log_dir).partitions[0]) == {2: result}


@pytest.mark.parametrize(
    ("log_start_offset", "offset", "what"),
    [(0, 3, "it belongs to no segment"), (3, 2, "it is not above the log start 3")],
    ids=["inside a segment", "not above the log start"],
)
def test_a_snapshot_that_a_broker_deletes_when_it_starts_is_named_and_not_judged(
    log_start_offset: int, offset: int, what: str, tmp_path: Path
) -> None:
    log_dir = log_dir_of(tmp_path)
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\nt 0 {log_start_offset}\n")
    for corrupt in (offset, 4):
        (log_dir / "t-0" / f"{corrupt:020d}.snapshot").write_bytes(b"no snapshot")
    assert checked(log_dir).exit_code == 4
    assert healed(log_dir, replace_corrupt=True).exit_code == 0
    report = checked(log_dir)
    assert report.exit_code == 0
    stray, *others = sorted(report.partitions[0].snapshots, key=lambda found: found.result != "stray")
    assert (stray.offset, str(stray.result)) == (offset, "stray")
    assert stray.what.startswith(f"{what}; a broker deletes it unread when it starts (")
    assert {str(found.result) for found in others} == {"equal"}
    assert {4, 6} <= {found.offset for found in others}
