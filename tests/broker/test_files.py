from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.broker.files import FileBrokerFacts
from sidecar.config import load_settings
from sidecar.errors import CorruptFile, PartitionError, SettingsError
from sidecar.model import PartitionFiles, TopicPartition
from sidecar.partition.wait_reason import Wait, render
from sidecar.ports import BrokerFacts
from sidecar.runner.configured_facts import open_facts
from tests.fakes.manual_clock import ManualClock

ORDERS = TopicPartition("orders", 0)
META_V1 = "#\nnode.id={id}\ndirectory.id=3zVd2U4lQ4eDYrzFqMWBbA\nversion=1\ncluster.id={cluster}\n"
META_V0 = "#\nbroker.id={id}\nversion=0\ncluster.id={cluster}\n"


def a_log_dir(
    parent: Path,
    name: str = "logs",
    *,
    meta: str | None = META_V1,
    high_watermark: int | None = None,
    recovery_point: int | None = None,
    log_start: int | None = None,
) -> Path:
    """A log dir whose checkpoints know orders-0; None: there is no such file."""
    log_dir = parent / name
    (log_dir / "orders-0").mkdir(parents=True)
    if meta is not None:
        (log_dir / "meta.properties").write_text(meta.format(id=1, cluster="abc"))
    files = {
        "replication-offset-checkpoint": high_watermark,
        "recovery-point-offset-checkpoint": recovery_point,
        "log-start-offset-checkpoint": log_start,
    }
    for file, offset in files.items():
        if offset is not None:
            (log_dir / file).write_text(f"0\n1\norders 0 {offset}\n")
    return log_dir


def files_of(
    log_dir: Path, topic_partition: TopicPartition = ORDERS, active_base_offset: int | None = 5
) -> PartitionFiles:
    directory = log_dir / str(topic_partition)
    return PartitionFiles(
        topic_partition, log_dir, directory, "ASNFZ4mrze_-3LqYdlQyEA", (), active_base_offset, (), False
    )


@pytest.mark.parametrize("meta", [META_V0, META_V1])
def test_who_the_broker_is(tmp_path: Path, meta: str) -> None:
    facts: BrokerFacts = FileBrokerFacts([a_log_dir(tmp_path, "one", meta=meta), a_log_dir(tmp_path, "two", meta=meta)])
    assert (facts.cluster_id(), facts.broker_id()) == ("abc", 1)


def test_a_failed_disk_does_not_hide_who_the_broker_is(tmp_path: Path) -> None:
    facts = FileBrokerFacts([tmp_path / "failed", a_log_dir(tmp_path, "one"), a_log_dir(tmp_path, "two", meta=None)])
    assert (facts.cluster_id(), facts.broker_id()) == ("abc", 1)


@pytest.mark.parametrize(
    ("other", "what"), [({"id": 2, "cluster": "abc"}, "broker"), ({"id": 1, "cluster": "xyz"}, "cluster")]
)
def test_log_dirs_that_disagree_are_wrong_settings(tmp_path: Path, other: dict[str, object], what: str) -> None:
    first, second = a_log_dir(tmp_path, "one"), a_log_dir(tmp_path, "two")
    (second / "meta.properties").write_text(META_V1.format(**other))
    facts = FileBrokerFacts([first, second])
    with pytest.raises(SettingsError, match=f"{what} id .* in .*one, .* in .*two"):
        facts.broker_id() if what == "broker" else facts.cluster_id()


def test_log_dirs_of_no_broker_are_wrong_settings(tmp_path: Path) -> None:
    facts = FileBrokerFacts([a_log_dir(tmp_path, meta=None)])
    for ask in (facts.cluster_id, facts.broker_id):
        with pytest.raises(SettingsError, match="are these a broker's log dirs"):
            ask()


def test_a_version_0_without_ids_leaves_them_unknown(tmp_path: Path) -> None:
    facts = FileBrokerFacts([a_log_dir(tmp_path, meta="version=0\n")])
    with pytest.raises(SettingsError, match="no cluster id"):
        facts.cluster_id()


@pytest.mark.parametrize("meta", ["", "random", "version=0\n"])
def test_a_log_dir_without_ids_is_reported_next_to_others(meta: str, tmp_path: Path) -> None:
    log_dirs = [a_log_dir(tmp_path, "one"), a_log_dir(tmp_path, "two", meta=meta)]
    flags = {"store.url": str(tmp_path / "archive"), "broker.log_dirs": log_dirs}
    with capture_logs() as logs, open_facts(load_settings(flags=flags).settings, ManualClock(0)) as facts:
        assert facts.cluster_id() == "abc"
    (warning,) = logs
    assert (warning["event"], warning["log_level"]) == ("meta_properties_without_ids", "warning")
    assert warning["file"] == str(tmp_path / "two" / "meta.properties")


def test_malformed_meta_properties_are_wrong_settings(tmp_path: Path) -> None:
    log_dir = a_log_dir(tmp_path, meta="version=9\n")
    with pytest.raises(SettingsError, match="version 9"):
        FileBrokerFacts([log_dir])


@pytest.mark.parametrize(
    ("high_watermark", "recovery_point", "stable"), [(70, 50, 50), (50, 70, 50), (0, 70, 0), (-1, 5, 0)]
)
def test_stable_is_what_is_replicated_and_flushed(
    tmp_path: Path, high_watermark: int, recovery_point: int, stable: int
) -> None:
    log_dir = a_log_dir(tmp_path, high_watermark=high_watermark, recovery_point=recovery_point)
    (log_dir / "orders-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 30\n")
    found = FileBrokerFacts([log_dir], assume_leader=True).partition(files_of(log_dir))
    assert (found.stable_end_offset, found.leads, found.leader_epoch, found.reason) == (stable, True, 7, None)
    assert (found.topic_partition, found.topic_id) == (ORDERS, "ASNFZ4mrze_-3LqYdlQyEA")


def test_leadership_is_never_guessed(tmp_path: Path) -> None:
    log_dir = a_log_dir(tmp_path, high_watermark=9, recovery_point=9)
    found = FileBrokerFacts([log_dir]).partition(files_of(log_dir))
    assert (found.leads, found.reason, found.stable_end_offset) == (False, Wait.LEADERSHIP_NOT_ON_DISK, 9)
    assert "--assume-leader" in render(found.reason)


@pytest.mark.parametrize(
    ("offsets", "reason"),
    [
        ((None, None), "replication-offset-checkpoint does not exist"),
        ((9, None), "recovery-point-offset-checkpoint does not exist"),
        ((None, 9), "replication-offset-checkpoint does not exist"),
    ],
)
def test_without_a_checkpoint_nothing_is_stable(
    tmp_path: Path, offsets: tuple[int | None, int | None], reason: str
) -> None:
    log_dir = a_log_dir(tmp_path, high_watermark=offsets[0], recovery_point=offsets[1])
    found = FileBrokerFacts([log_dir], assume_leader=True).partition(files_of(log_dir))
    assert found.stable_end_offset == 0
    assert reason in render(found.reason)


def test_a_partition_without_an_entry_has_nothing_stable(tmp_path: Path) -> None:
    log_dir = a_log_dir(tmp_path, high_watermark=9, recovery_point=9)
    found = FileBrokerFacts([log_dir], assume_leader=True).partition(files_of(log_dir, TopicPartition("new", 0)))
    assert found.stable_end_offset == 0
    assert "replication-offset-checkpoint has no entry for new-0" in render(found.reason)


def test_a_malformed_checkpoint_stops_its_log_dir_only(tmp_path: Path) -> None:
    good = a_log_dir(tmp_path, "good", high_watermark=9, recovery_point=9)
    bad = a_log_dir(tmp_path, "bad", high_watermark=9, recovery_point=9)
    (bad / "recovery-point-offset-checkpoint").write_bytes(b"\0" * 20)
    facts = FileBrokerFacts([good, bad], assume_leader=True)
    assert facts.partition(files_of(good)).stable_end_offset == 9
    for _ in range(2):
        with pytest.raises(CorruptFile, match="recovery-point-offset-checkpoint"):
            facts.partition(files_of(bad))


def test_a_checkpoint_that_cannot_be_read_is_an_error_and_no_missing_one(tmp_path: Path) -> None:
    log_dir = a_log_dir(tmp_path, high_watermark=9, recovery_point=9)
    for name in ("replication-offset-checkpoint", "log-start-offset-checkpoint"):
        (log_dir / name).unlink(missing_ok=True)
        (log_dir / name).mkdir()
        with pytest.raises(PartitionError, match=f"{name}: cannot be read: Is a directory"):
            FileBrokerFacts([log_dir], assume_leader=True).partition(files_of(log_dir))
        (log_dir / name).rmdir()
        (log_dir / name).write_text("0\n1\norders 0 9\n")


def test_each_reason_for_not_knowing_the_broker_has_words_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "unreadable" / "meta.properties").mkdir(parents=True)
    words = {
        "nowhere": "nowhere does not exist",
        "file": "file is a file, not a directory",
        "empty": "empty holds no meta.properties",
        "unreadable": "unreadable/meta.properties: cannot be read",
    }
    for name, expected in words.items():
        with pytest.raises(SettingsError, match=expected):
            FileBrokerFacts([tmp_path / name]).cluster_id()


def test_a_partition_of_another_log_dir_has_nothing_stable(tmp_path: Path) -> None:
    facts = FileBrokerFacts([a_log_dir(tmp_path, high_watermark=9, recovery_point=9)], assume_leader=True)
    found = facts.partition(files_of(tmp_path / "elsewhere"))
    assert (found.stable_end_offset, found.leader_epoch) == (0, -1)
    assert "not one of the configured log directories" in render(found.reason)


def test_a_malformed_leader_epoch_checkpoint_is_an_error(tmp_path: Path) -> None:
    log_dir = a_log_dir(tmp_path, high_watermark=9, recovery_point=9)
    (log_dir / "orders-0" / "leader-epoch-checkpoint").write_text("0\n7\n")
    with pytest.raises(CorruptFile, match="leader-epoch-checkpoint: 0 entries, the file announces 7"):
        FileBrokerFacts([log_dir], assume_leader=True).partition(files_of(log_dir))


@pytest.mark.parametrize(("log_start", "expected"), [(None, 5), (3, 5), (8, 8)])
def test_the_log_starts_at_its_first_base_or_above(tmp_path: Path, log_start: int | None, expected: int) -> None:
    log_dir = a_log_dir(tmp_path, log_start=log_start)
    assert FileBrokerFacts([log_dir]).partition(files_of(log_dir)).log_start_offset == expected


def test_refresh_reads_everything_anew(tmp_path: Path) -> None:
    log_dir = a_log_dir(tmp_path, high_watermark=9, recovery_point=9)
    facts = FileBrokerFacts([log_dir], assume_leader=True)
    a_later = a_log_dir(tmp_path / "later", high_watermark=20, recovery_point=30)
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        (a_later / name).replace(log_dir / name)
    assert facts.partition(files_of(log_dir)).stable_end_offset == 9
    facts.refresh()
    assert facts.partition(files_of(log_dir)).stable_end_offset == 20
