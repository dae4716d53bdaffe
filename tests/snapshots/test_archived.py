"""Snapshots in an archive, checked and rebuilt from its own segments."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.config import Settings
from sidecar.config.loading import load_settings
from sidecar.config.topic_filter import TopicFilter
from sidecar.errors import CorruptFile, ObjectFrozen, SettingsError, SidecarError
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.runner.backfill import backfill
from sidecar.snapshots import Replay
from sidecar.snapshots.archived_partition import ArchivedPartition
from sidecar.snapshots.check import Result, check
from sidecar.snapshots.jobs import Forgetting
from sidecar.snapshots.rebuild import rebuild
from sidecar.snapshots.resolve_paths import Targets, archive_targets, find_targets
from tests.golden import golden, golden_copy, wall_clock_ms
from tests.snapshots.log_dirs import DAY_MS, log_dir_of, tree

FORGETTING = Forgetting(SystemClock().now_ms(), DAY_MS)


def backfilled(tmp_path: Path, log_dir: Path, *topics: str) -> Settings:
    """These topics of a log dir, in the test's archive."""
    flags = {
        "store.url": str(tmp_path / "archive"),
        "broker.log_dirs": [log_dir],
        "broker.assume_leader": True,
        "broker.settle_ms": 0,
        "run.state_dir": tmp_path / "state" / log_dir.parent.name,
        "topics.include": list(topics),
    }
    settings = load_settings(flags=flags).settings
    assert backfill(settings, dry_run=False).exit_code == 0
    return settings


@pytest.fixture(name="archive")
def _archive(tmp_path: Path) -> Settings:
    """2.7.2's partitions, most of whose snapshots had to be rebuilt."""
    return backfilled(tmp_path, golden("2.7.2") / "logs", "orders", "transactions", "trimmed", "legacy-v1")


def targets_of(archive: Settings, *topics: str) -> Targets:
    return archive_targets(archive.store, SystemClock(), TopicFilter(topics or (".*",)))


def test_an_archives_snapshots_equal_the_replay_of_its_segments(archive: Settings) -> None:
    report = check(targets_of(archive), LocalEngine(2), FORGETTING)
    assert report.exit_code == 0
    found = [snapshot.result for partition in report.partitions for snapshot in partition.snapshots]
    assert set(found) == {Result.EQUAL}
    assert len(found) >= 20


def test_rebuilt_from_the_archive_is_what_is_rebuilt_from_the_directories(archive: Settings, tmp_path: Path) -> None:
    topics = TopicFilter(("orders", "trimmed"))
    local = find_targets([golden("2.7.2") / "logs"], topics)
    rebuild(local, tmp_path / "local", LocalEngine(1), FORGETTING)
    rebuild(targets_of(archive, "orders", "trimmed"), tmp_path / "archived", LocalEngine(1), FORGETTING)
    assert tree(tmp_path / "local") == tree(tmp_path / "archived")
    assert len(tree(tmp_path / "local")) >= 12


@pytest.mark.parametrize(
    "is_one_unreadable", [False, pytest.param(True, marks=pytest.mark.leaves_damage("commit_log"))]
)
def test_topics_of_one_name_from_two_clusters_are_not_written_into_one_directory(
    is_one_unreadable: bool, archive: Settings, tmp_path: Path
) -> None:
    """Also where the commits of one of them cannot be read: the other one need not be the one that is meant."""
    backfilled(tmp_path, golden("4.3.0") / "logs", "orders")
    if is_one_unreadable:
        for commit in (tmp_path / "archive").glob("*/orders/0/0/c*/*"):
            commit.write_text("not a commit, and no checkpoint")
    report = rebuild(targets_of(archive, "orders", "trimmed"), tmp_path / "out", LocalEngine(1), FORGETTING)
    assert (report.exit_code, len(report.problems)) == (3, int(is_one_unreadable))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["trimmed-0"]
    stopped = {partition.log.place: partition.problem for partition in report.partitions if partition.problem}
    assert len(stopped) == (3 if is_one_unreadable else 4)
    assert all(f"{place}: one of 2 logs of orders-" in problem for place, problem in stopped.items())


@pytest.mark.parametrize("replay", list(Replay))
def test_rebuilt_is_called_exact_only_where_the_archive_says_so(tmp_path: Path, replay: Replay) -> None:
    """Retention has deleted the first segments, and no snapshot tells what was in them."""
    logs = golden_copy("2.7.2", tmp_path / "golden") / "logs"
    for directory in logs.glob("orders-*"):
        for path in directory.glob(f"{0:020d}.*"):
            path.unlink()
    settings = backfilled(tmp_path, logs, "orders")
    targets = targets_of(settings)
    forgetting = Forgetting(wall_clock_ms("2.7.2"), 7 * DAY_MS)
    report = rebuild(targets, tmp_path / "out", LocalEngine(1), forgetting, replay=replay)
    assert {log.recorded_exact(offset) for log in targets.partitions for offset in log.bases} == {False}
    assert len(report.partitions) == 2
    for rebuilt in report.partitions:
        assert len(rebuilt.snapshots) > 2
        assert not any(snapshot.exact for snapshot in rebuilt.snapshots)


@pytest.mark.leaves_damage("checksum_mismatch", "corrupt_content")
def test_a_damaged_object_ends_its_partition_only(archive: Settings, tmp_path: Path) -> None:
    (log,) = [
        path
        for path in (tmp_path / "archive").rglob("*.log")
        if path.name.startswith("0" * 20) and "orders/0" in str(path)
    ]
    content = bytearray(log.read_bytes())
    content[200] ^= 1
    log.chmod(0o644)
    log.write_bytes(content)
    report = check(targets_of(archive, "orders"), LocalEngine(1), FORGETTING)
    damaged, whole = report.partitions
    assert "checksum" in damaged.problem
    assert {snapshot.result for snapshot in damaged.snapshots} == {Result.UNKNOWN}
    assert {snapshot.result for snapshot in whole.snapshots} == {Result.EQUAL}
    assert report.exit_code == 3


@pytest.mark.parametrize("error", [CorruptFile("damaged", file="an object"), ObjectFrozen("in an archive class")])
def test_a_snapshot_that_cannot_be_read_is_no_success(
    archive: Settings, error: SidecarError, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = ArchivedPartition.snapshot

    def fails(log: ArchivedPartition, offset: int) -> tuple[bytes, int]:
        if (log.topic_partition.partition, offset) == (0, max(log.by_end)):
            raise error
        return read(log, offset)

    monkeypatch.setattr(ArchivedPartition, "snapshot", fails)
    report = check(targets_of(archive, "orders"), LocalEngine(1), FORGETTING)
    first, other = report.partitions
    assert [snapshot.result for snapshot in first.snapshots][-2:] == [Result.EQUAL, Result.UNKNOWN]
    assert str(error) in first.problem
    assert {snapshot.result for snapshot in other.snapshots} == {Result.EQUAL}
    assert report.exit_code == 3


def test_out_may_be_in_the_directory_of_a_copy_but_in_no_log_dir_of_a_broker(tmp_path: Path) -> None:
    log_dir, other = log_dir_of(tmp_path), tmp_path / "other"
    targets = find_targets([log_dir / "t-0"], TopicFilter())
    rebuild(targets, log_dir / "out", LocalEngine(1), FORGETTING)
    other.mkdir()
    for broker in (log_dir, other):
        (broker / "meta.properties").touch()
        for out in (broker, broker / "out" / "deep"):
            with pytest.raises(SettingsError, match="in a broker's log directory"):
                rebuild(targets, out, LocalEngine(1), FORGETTING)
