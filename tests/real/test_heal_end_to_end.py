"""The story of KIP-952 on real brokers: 2.7.2 writes, 3.9.1 cannot tier what it wrote, `snapshots heal`, and it can.

And what the snapshots in remote storage are for: a new replica starts from them, and must know who wrote what.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.real.product import json_lines, run_installed, run_program
from tests.real.stored_batches import (
    Produced,
    StoredBatch,
    last_data_batch,
    segment_bases,
    send_again,
    stored_batches,
)
from tests.real.tiered_storage import VERSION, tiered_segments, tiering_properties
from tests.real.topics import committed_offsets, create_topic, in_sync_replicas, leader_of, set_topic, wait_until, write
from tests.servers.kafka import KafkaBroker
from tests.servers.zookeeper import ZooKeeper
from tests.snapshot_files import write_snapshot

pytestmark = [pytest.mark.real, pytest.mark.slow]

TOPIC = "ledger"
PARTITION = f"{TOPIC}-0"
EMPTY = write_snapshot([])
# Producer `a` falls silent early. The last transaction of `u` is open where the last segment begins, and aborted in it.
SCRIPT = f"""
producer a
producer b
producer t transactional.id=t
producer u transactional.id=u
send a {TOPIC} 0 30
begin t
send t {TOPIC} 0 60
commit t
send b {TOPIC} 0 200
begin u
send u {TOPIC} 0 80
abort u
begin t
send t {TOPIC} 0 250
commit t
send b {TOPIC} 0 450
begin u
send u {TOPIC} 0 20
send b {TOPIC} 0 150
abort u
send b {TOPIC} 0 3
"""
FAILURE = (
    'java.lang.NullPointerException: Cannot invoke "java.io.File.toPath()" because "producerStateSnapshotFile" is null'
)


@dataclass(frozen=True)
class Written:
    """What 2.7.2 left behind, stopped cleanly: `root` holds the directories of broker and ZooKeeper."""

    root: Path
    bases: tuple[int, ...]
    batches: tuple[StoredBatch, ...]

    @property
    def aborted_offsets(self) -> set[int]:
        """Of the transaction that is open at the last segment's base."""
        marker = [batch for batch in self.batches if batch.control][-1]
        begun = [batch.base_offset for batch in self.batches if batch.control and batch != marker][-1]
        data = [batch for batch in self.batches if batch.producer_id == marker.producer_id and not batch.control]
        return {
            offset
            for batch in data
            if begun < batch.base_offset
            for offset in range(batch.base_offset, batch.last_offset + 1)
        }


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    root = tmp_path_factory.mktemp("written")
    with (
        ZooKeeper(VERSION, root / "zookeeper") as zookeeper,
        KafkaBroker("2.7.2", root / "kafka", zookeeper_connect=zookeeper.connect) as broker,
    ):
        create_topic(broker, TOPIC, segment_bytes=16384)
        write(broker, SCRIPT, root)
    directory = broker.log_dirs[0] / PARTITION
    made = Written(root, tuple(segment_bases(directory)), tuple(stored_batches(directory)))
    assert len(made.bases) > 10
    assert len(made.aborted_offsets) == 20
    assert max(made.aborted_offsets) < made.bases[-1]
    return made


@contextmanager
def upgraded(written: Written, root: Path) -> Iterator[KafkaBroker]:
    """A copy, and the newer broker on it, not started; its ZooKeeper runs."""
    shutil.copytree(written.root, root, copy_function=shutil.copy2)
    with ZooKeeper(VERSION, root / "zookeeper") as zookeeper:
        broker = KafkaBroker(
            VERSION,
            root / "kafka",
            mode="zookeeper",
            zookeeper_connect=zookeeper.connect,
            properties=tiering_properties(root / "remote"),
        )
        try:
            yield broker
        finally:
            broker.close()


def fingerprint(log_dir: Path) -> dict[str, tuple[object, ...]]:
    """All that can be seen of every file and directory below, except when a directory was changed."""
    seen: dict[str, tuple[object, ...]] = {}
    for path in sorted(log_dir.rglob("*")):
        status = path.stat()
        what: tuple[object, ...] = (status.st_ino, status.st_mode, status.st_uid, status.st_gid)
        if path.is_file():
            what += (status.st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        seen[str(path.relative_to(log_dir))] = what
    return seen


def snapshot_names(offsets: list[int] | tuple[int, ...]) -> list[str]:
    return [f"{offset:020d}.snapshot" for offset in offsets]


@pytest.mark.parametrize(
    "restored",
    [pytest.param(True, id="restored"), pytest.param(False, id="as-the-broker-does-it", marks=pytest.mark.apart)],
)
def test_what_2_7_2_wrote_is_tiered_once_healed_and_a_new_replica_needs_the_tiered_snapshot(
    written: Written, tmp_path: Path, restored: bool
) -> None:
    """3.9.1 fetches the snapshot for a new replica and deletes it before it has read it; so the replica begins with none.

    Source: TierStateMachine.buildProducerSnapshotFile, ProducerStateManager.truncateFullyAndReloadSnapshots; so too in 4.3.0.
    """
    root, active = tmp_path / "story", written.bases[-1]
    retried = last_data_batch(written.batches, written.batches[0].producer_id)
    with upgraded(written, root) as first:
        heal_and_tier(first, written, root / "remote")
        set_topic(first, TOPIC, {"local.retention.bytes": "1"})
        directory = first.log_dirs[0] / PARTITION
        wait_until("only the active segment is still local", lambda: segment_bases(directory) == [active])
        tiered = tiered_segments(root / "remote", PARTITION)[written.bases[-2]][".snapshot"].read_bytes()
        with new_broker_like(first, root) as second:
            place_replicas(second, [1, 2])
            copy = second.log_dirs[0] / PARTITION
            assert segment_bases(copy) == [active]
            assert (copy / f"{active:020d}.snapshot").read_bytes() == EMPTY != tiered
            if restored:
                second.stop()
                restore(copy, active, tiered)
                second.start()
            place_replicas(second, [2])

            end_offset = written.batches[-1].last_offset + 1
            expected = retried.base_offset if restored else end_offset
            assert send_again(second.port, TOPIC, 0, retried) == Produced(0, expected)
            appended = [batch for batch in stored_batches(copy) if batch.identity == retried.identity]
            assert len(appended) == (0 if restored else 1)
            visible = written.aborted_offsets.intersection(committed_offsets(second, TOPIC))
            assert visible == (set() if restored else written.aborted_offsets)


def heal_and_tier(broker: KafkaBroker, written: Written, remote: Path) -> None:
    """Tiering fails; the broker is stopped, healed and started, and every rolled segment is copied."""
    log_dir = broker.log_dirs[0]
    directory = log_dir / PARTITION
    lacking = [name for name in snapshot_names(written.bases[1:]) if not (directory / name).exists()]
    assert len(lacking) >= len(written.bases) - 4

    broker.start()
    wait_until("the broker leads the partition", lambda: leader_of(broker, TOPIC) == broker.node_id)
    set_topic(broker, TOPIC, {"remote.storage.enable": "true"})
    wait_until("tiering has failed three times", lambda: broker.log_text().count(FAILURE) >= 3)
    broker.stop()
    assert not list(remote.rglob("*.log*"))

    before = fingerprint(log_dir)
    done = run_installed({}, "snapshots", "heal", "--json", str(log_dir))
    assert done.returncode == 0, done.stderr
    (report,) = json_lines(done)
    assert report["counts"]["created"] == len(lacking)
    after = fingerprint(log_dir)
    # Heal locks the directory as a broker does, and leaves the lock file as a broker does.
    assert {name for name in after if before.get(name) != after[name]} - {".lock"} == {
        f"{PARTITION}/{name}" for name in lacking
    }
    assert before.keys() <= after.keys()
    heal_newest_again(log_dir, report, lacking)
    assert {name: value[-1] for name, value in fingerprint(log_dir).items() if name.endswith(".snapshot")} == {
        name: value[-1] for name, value in after.items() if name.endswith(".snapshot")
    }

    broker.start()
    rolled = written.bases[:-1]
    wait_until("every rolled segment is copied", lambda: steps(broker, "Copied") == list(rolled))
    # Each was taken up once: none failed.
    assert steps(broker, "Copying") == list(rolled)
    assert "NullPointerException" not in broker.log_text()

    tiered = tiered_segments(remote, PARTITION)
    assert sorted(tiered) == list(rolled)
    for base, end in pairwise(written.bases):
        files = tiered[base]
        for suffix in files.keys() - {".snapshot", ".leader_epoch_checkpoint"}:
            assert files[suffix].read_bytes() == (directory / f"{base:020d}{suffix}").read_bytes()
        assert files[".snapshot"].read_bytes() == (directory / f"{end:020d}.snapshot").read_bytes()


def heal_newest_again(log_dir: Path, whole: dict[str, Any], healed: list[str]) -> None:
    """Without the newest of those it made, `heal` reads one segment: on from the snapshot below. All bases have one again."""
    directory = log_dir / PARTITION
    (directory / healed[-1]).unlink()
    done = run_program({}, "snapshots", "heal", "--json", "--replay", "window", str(log_dir))
    assert done.returncode == 0, done.stderr
    (report,) = json_lines(done)
    (row,) = report["partitions"]
    below = max(base for base in segment_bases(directory) if base < int(healed[-1].partition(".")[0]))
    assert row["replayed_from"] == [{"offset": below, "start": "snapshot"}]
    assert row["read_bytes"] == (directory / f"{below:020d}.log").stat().st_size
    assert row["exact"]
    assert whole["counts"]["read_bytes"] > 4 * row["read_bytes"]


def steps(broker: KafkaBroker, what: str) -> list[int]:
    """Base offsets of the segments of which the broker's log says so, in its order."""
    return [int(base) for base in re.findall(rf"{PARTITION}\] {what} (\d{{20}})\.log to remote", broker.log_text())]


def restore(directory: Path, base: int, snapshot: bytes) -> None:
    """Give a stopped replica the snapshot it should have begun with, and have its one segment replayed from there."""
    for path in directory.glob("*.snapshot"):
        path.unlink()
    (directory / f"{base:020d}.snapshot").write_bytes(snapshot)
    # A segment without index is recovered at the start; so the transaction index learns of the abort, too.
    (directory / f"{base:020d}.index").unlink()


def new_broker_like(broker: KafkaBroker, root: Path) -> KafkaBroker:
    """A second node of the cluster, with the same remote storage and nothing of its own."""
    return KafkaBroker(
        broker.version,
        root / "second",
        mode="zookeeper",
        node_id=2,
        zookeeper_connect=broker.zookeeper_connect,
        properties=broker.properties,
    )


def place_replicas(broker: KafkaBroker, node_ids: list[int]) -> None:
    """Make these the replicas, the first of them the leader if it was not led before; wait until all are in sync."""
    from kafka.admin import KafkaAdminClient
    from kafka.structs import TopicPartition

    admin = KafkaAdminClient(bootstrap_servers=[broker.bootstrap])
    try:
        admin.alter_partition_reassignments({TopicPartition(TOPIC, 0): node_ids})
    finally:
        admin.close()
    wait_until(f"the replicas in sync are {node_ids}", lambda: in_sync_replicas(broker, TOPIC) == set(node_ids))
