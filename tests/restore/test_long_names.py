"""Topics whose names are as long as Kafka allows: what a restore makes has names that a file system takes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.logformat.names import MAX_TOPIC_CHARACTERS, parse_directory_name
from sidecar.model import TopicPartition
from sidecar.restore.request import LeaderEpochMode, ProducerStateMode, RestoreRequest
from sidecar.restore.restore import plan_restore, restore
from sidecar.restore.staging import staging_name, unfinished
from sidecar.restore.target import CommandNote, Restored
from tests.fakes.memory_store import MemoryStore
from tests.restore.archives import CLOCK, files_of, golden_topic_id, own_log_dir
from tests.runner.rig import archive, copy_partitions, tools_for

LONGEST = "m" * MAX_TOPIC_CHARACTERS


def archived_as(topic: str, directory: Path) -> tuple[MemoryStore, Path]:
    """The golden topic `orders`, archived under another name; and its log dir."""
    log_dir, store = copy_partitions(directory, "orders-0", "orders-1"), MemoryStore()
    for partition in (0, 1):
        (log_dir / f"orders-{partition}").rename(log_dir / f"{topic}-{partition}")
    for path in log_dir.glob("*-checkpoint"):
        path.write_text(path.read_text().replace("orders ", f"{topic} "))
    (directory / "state").mkdir()
    with tools_for(log_dir, store, directory / "state") as context:
        archive(context, log_dir)
    return store, log_dir


def request_for(topic: str, log_dir: Path) -> RestoreRequest:
    return RestoreRequest(topic, log_dir, topic_id=golden_topic_id("orders"))


@pytest.mark.parametrize("length", [237, 242, 244, MAX_TOPIC_CHARACTERS])
def test_a_topic_with_a_long_name_is_restored(length: int, tmp_path: Path) -> None:
    topic = "m" * length
    store, source = archived_as(topic, tmp_path)
    log_dir = own_log_dir(tmp_path)
    report = restore(store, CLOCK, request_for(topic, log_dir))
    assert [(outcome.state, outcome.problem) for outcome in report.outcomes] == [("restored", "")] * 2
    for name in (f"{topic}-0", f"{topic}-1"):
        logs = {path.name: path.read_bytes() for path in sorted((source / name).glob("*.log"))[:-1]}
        assert logs
        assert logs.items() <= files_of(log_dir / name).items()
    again = restore(store, CLOCK, request_for(topic, log_dir))
    assert {outcome.state for outcome in again.outcomes} == {"done before"}


def test_what_is_unfinished_of_a_long_name_is_known_again(tmp_path: Path) -> None:
    store, source = archived_as(LONGEST, tmp_path)
    log_dir = own_log_dir(tmp_path)
    key = max(key for key in store.objects if f"/{LONGEST}/0/" in key and key.endswith(".log"))
    body = store.objects.pop(key)
    report = restore(store, CLOCK, request_for(LONGEST, log_dir))
    assert [outcome.state for outcome in report.outcomes] == ["stopped", "restored"]
    (staged,) = unfinished(log_dir, LONGEST)
    assert staged == staging_name(TopicPartition(LONGEST, 0))
    assert (log_dir / staged).is_dir()
    assert unfinished(log_dir, LONGEST[:-1] + "n") == {}
    # Its topic id is found there, too, and without meta.properties it is still a directory of a restore.
    (log_dir / "meta.properties").unlink()
    other = RestoreRequest(LONGEST, log_dir, partitions=(1,), leader_epochs=LeaderEpochMode.KEEP)
    shutil.rmtree(log_dir / f"{LONGEST}-1")
    assert plan_restore(store, CLOCK, replace(other, producer_state=ProducerStateMode.KEEP)).unfinished == [staged]
    shutil.copy(source / "meta.properties", log_dir)
    store.objects[key] = body
    report = restore(store, CLOCK, request_for(LONGEST, log_dir))
    assert report.exit_code == 0
    assert report.outcomes[0].segments_resumed > 0
    assert unfinished(log_dir, LONGEST) == {}


@pytest.mark.parametrize("topic", ["orders", "m" * 240, "m" * 244, LONGEST, "m" * 200 + "-1." * 16])
def test_no_broker_takes_a_staging_directory_for_a_partitions(topic: str) -> None:
    """It would ask what follows the last '-' to be a number. Source: LocalLog.parseTopicPartitionName."""
    for partition in (0, 99_999):
        name = staging_name(TopicPartition(topic, partition))
        assert len(name) <= 255
        assert not name.rpartition("-")[2].isdigit()
        assert not name.endswith(("-delete", "-future", "-stray"))
        assert parse_directory_name(name) is None
        # Earlier versions never cut a name: what they left is found under it.
        whole = f"{topic}-{partition}.restoring"
        assert (name == whole) == (len(whole) <= 255)


def test_names_with_a_common_beginning_stay_apart() -> None:
    assert staging_name(TopicPartition(LONGEST, 0)) != staging_name(TopicPartition(LONGEST[:-1], 0))


def test_a_note_under_a_long_name_is_read_again(tmp_path: Path) -> None:
    (tmp_path / f"{LONGEST}-0").mkdir()
    inode = (tmp_path / f"{LONGEST}-0").stat().st_ino
    seal = Restored(
        topic_id=None,
        leader_epochs=LeaderEpochMode.KEEP,
        producer_state=ProducerStateMode.DROP,
        asked={"offset_range": [1, 2]},
        identities=("one",),
        end_offset=2,
        files={"a": 1},
    )
    CommandNote(tmp_path, LONGEST).add({TopicPartition(LONGEST, 0): (inode, seal)})
    assert CommandNote(tmp_path, LONGEST).finished() == {tmp_path / f"{LONGEST}-0": seal}
    assert CommandNote(tmp_path, LONGEST[:-1]).finished() == {}
