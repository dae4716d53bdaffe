"""Writes the golden log directories again, with real brokers: `python -m tests.golden.generate [--version V] [--out DIR]`.

Needs Java 17, Maven and the dev dependencies. About two minutes per version.
"""

# The inline types of confluent_kafka.admin neither export what they import nor annotate OffsetSpec.
# mypy: disable-error-code="attr-defined, no-untyped-call"

from __future__ import annotations

import argparse
import json
import lzma
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.golden import STORE, VERSIONS
from tests.golden.scenario import CODECS, LEGACY_TOPICS, TOPICS, Topic, empty_transaction_script, scripts
from tests.servers.kafka import KafkaBroker
from tests.servers.kafka_cluster import KafkaCluster
from tests.servers.kafka_java import dump_log_segments, run_java

Settings = Mapping[str, str | int | bool]

NODE_ID = 1
TRIMMED_OFFSET = 170
BROKER_PROPERTIES = {
    "auto.create.topics.enable": "false",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    # The map's share of this buffer is what the cleaner allocates at once; the default does not fit the small heap.
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.segment.delete.delay.ms": "500",
    "log.index.interval.bytes": "1024",
}
# Options of DumpLogSegments by file suffix; the index dumps check against the log beside them.
DUMP_OPTIONS: Mapping[str, Sequence[str]] = {
    ".log": ("--deep-iteration", "--print-data-log"),
    ".index": (),
    ".timeindex": (),
    ".txnindex": (),
    ".snapshot": (),
}
_WAIT_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", action="append", choices=VERSIONS, help="default: all")
    parser.add_argument("--out", type=Path, default=STORE, help="where the archives, dumps and manifest go")
    arguments = parser.parse_args()
    for version in arguments.version or VERSIONS:
        with tempfile.TemporaryDirectory(prefix="golden-") as scratch:
            generate(version, Path(scratch), arguments.out)


def generate(version: str, scratch: Path, out: Path) -> None:
    """Runs the scenario of one version and writes its archive, dump and manifest entry below `out`."""
    tree = scratch / "tree"
    topics = [*TOPICS, *(LEGACY_TOPICS if version == "2.7.2" else ())]
    with _broker(version, scratch) as broker:
        entry = _write_logs(broker, topics, scratch)
        _copy_log_dir(broker.log_dirs[0], tree / "logs", keep=lambda name: not name.startswith("__consumer_offsets"))
        broker.start()
        _compact(broker)
        broker.stop()
        _copy_log_dir(broker.log_dirs[0], tree / "compacted", keep=lambda name: name.startswith("compacted-"))
        entry["wall_clock_ms"] = time.time_ns() // 1_000_000  # noqa: TID251 - the wall clock is what is recorded
    for name, topic in entry["topics"].items():
        metadata = tree / "logs" / f"{name}-0" / "partition.metadata"
        # 2.7 knows no topic ids.
        found = re.search(r"^topic_id: (\S+)$", metadata.read_text(), re.MULTILINE) if metadata.exists() else None
        topic["topic_id"] = found.group(1) if found else None
    _store(version, tree, entry, out)


@contextmanager
def _broker(version: str, scratch: Path) -> Iterator[KafkaBroker]:
    """A broker whose restart begins a leader epoch.

    KRaft does that by itself. With ZooKeeper it takes a second node that stays up as controller: it sees the partitions
    go offline and come back.
    """
    properties = dict(BROKER_PROPERTIES)
    if version != "4.3.0":
        properties["transaction.state.log.segment.bytes"] = "16384"
    if version == "2.7.2":
        with KafkaCluster(version, scratch / "cluster", 2, properties=properties) as cluster:
            yield cluster.brokers[NODE_ID]
    else:
        with KafkaBroker(version, scratch / "broker", node_id=NODE_ID, properties=properties) as broker:
            yield broker


def _write_logs(broker: KafkaBroker, topics: Sequence[Topic], scratch: Path) -> dict[str, Any]:
    """Creates the topics, runs one script per leader epoch and stops the broker; returns the manifest entry."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    _create_topics(admin, broker.version, topics)
    legacy = broker.version == "2.7.2"
    number = 0
    for turn, script in enumerate(scripts(legacy)):
        if turn > 0:
            broker.stop()
            broker.start()
            _upgrade_legacy_mixed(admin, turn, legacy)
        number = _produce(broker, broker.version, script, number, scratch)
        _produce_with_librdkafka(broker.bootstrap, turn, legacy)
        if turn == 1:
            # A 4.x client would let the broker add the partition with the first batch, and there is none.
            number = _produce(broker, min(broker.version, "3.9.1"), empty_transaction_script(), number, scratch)
            _trim(admin, broker.log_dirs[0] / "trimmed-0")
    # A new client: the old one asks with the leader epochs it learned before the restarts, and is fenced.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    entry = {
        "broker_version": broker.version,
        "cluster_id": _property(broker.log_dirs[0] / "meta.properties", "cluster.id"),
        "broker_id": NODE_ID,
        "topics": {topic.name: _topic_entry(admin, topic) for topic in topics},
    }
    broker.stop()
    return entry


def _create_topics(admin: AdminClient, version: str, topics: Sequence[Topic]) -> None:
    # 4.x refuses segment.bytes below 1 MiB; its own tests use the internal setting.
    segment_setting = "internal.segment.bytes" if version == "4.3.0" else "segment.bytes"
    new_topics = [
        NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replica_assignment=[[NODE_ID]] * topic.partitions,
            config={segment_setting: str(topic.segment_bytes), **topic.settings},
        )
        for topic in topics
    ]
    for created in admin.create_topics(new_topics).values():
        created.result(_WAIT_S)


def _produce(broker: KafkaBroker, client_version: str, script: str, number: int, scratch: Path) -> int:
    path = scratch / "script.txt"
    path.write_text(script)
    output = run_java(STORE / "Produce.java", client_version, broker.bootstrap, str(path), str(number))
    return int(output.split()[-1])


def _produce_with_librdkafka(bootstrap: str, turn: int, legacy: bool) -> None:
    for codec in CODECS:
        settings: Settings = {"enable.idempotence": True, "compression.type": codec, "batch.size": 4000}
        _librdkafka_send(bootstrap, settings, "codecs-librdkafka", 150)
    _librdkafka_send(bootstrap, {"enable.idempotence": True, "batch.size": 2000}, "orders", 60)
    for codec, commit in (("snappy", True), ("zstd", False), ("lz4", True)):
        transaction: Settings = {"transactional.id": f"c-{codec}", "compression.type": codec, "batch.size": 3000}
        _librdkafka_send(bootstrap, transaction, "transactions", 40, commit=commit)
    if legacy and turn == 0:
        for codec in ("none", "snappy", "lz4"):
            # Without the version request librdkafka speaks as to a 0.10.0 broker and writes magic 1 itself.
            old: Settings = {"api.version.request": False, "broker.version.fallback": "0.10.0.0"}
            codec_settings = {**old, "compression.type": codec, "batch.size": 3000}
            _librdkafka_send(bootstrap, codec_settings, "legacy-v1", 60, headers=False)


def _librdkafka_send(
    bootstrap: str,
    settings: Settings,
    topic: str,
    count: int,
    *,
    headers: bool = True,
    commit: bool | None = None,
) -> None:
    """`count` records to partition 0; in a transaction when the settings name a transactional id."""
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "on_delivery": lambda error, _: failures.append(str(error)) if error else None,
            **settings,
        }
    )
    if commit is not None:
        producer.init_transactions(_WAIT_S)
        producer.begin_transaction()
    for i in range(count):
        producer.produce(
            topic,
            partition=0,
            key=None if i % 10 == 3 else f"key-{i % 37}",
            value=None if i % 12 == 5 else f"librdkafka record {i} " + "grove heron " * (i % 9),
            headers=[("client", b"librdkafka"), ("absent", None), ("client", b"")] if headers and i % 4 == 0 else [],
        )
    unsent = producer.flush(_WAIT_S)
    if unsent or failures:
        raise RuntimeError(f"{unsent} records of {topic} were not acknowledged, {len(failures)} failed: {failures[:1]}")
    if commit is not None:
        (producer.commit_transaction if commit else producer.abort_transaction)(_WAIT_S)


def _upgrade_legacy_mixed(admin: AdminClient, turn: int, legacy: bool) -> None:
    if legacy:
        _set(admin, "legacy-mixed", {"message.format.version": "0.10.0" if turn == 1 else "2.7"})


def _trim(admin: AdminClient, directory: Path) -> None:
    (done,) = admin.delete_records([TopicPartition("trimmed", 0, TRIMMED_OFFSET)]).values()
    done.result(_WAIT_S)
    first_segment = directory / f"{0:020d}.log"
    _wait(
        "the trimmed segments are deleted", lambda: not first_segment.exists() and not list(directory.glob("*.deleted"))
    )


def _compact(broker: KafkaBroker) -> None:
    """Lets the broker's cleaner run over `compacted` until it finds nothing more to do."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    _set(admin, "compacted", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.001"})
    checkpoint = broker.log_dirs[0] / "cleaner-offset-checkpoint"

    def cleaned() -> bool:
        before = checkpoint.read_text()
        time.sleep(5.0)  # noqa: TID251 - ten rounds of the cleaner without progress
        return before == checkpoint.read_text() and before.count("compacted ") == 2

    _wait("the cleaner has cleaned", cleaned)


def _set(admin: AdminClient, topic: str, settings: Mapping[str, str]) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(_WAIT_S)


def _topic_entry(admin: AdminClient, topic: Topic) -> dict[str, Any]:
    keys = [TopicPartition(topic.name, partition) for partition in range(topic.partitions)]
    start = _offsets(admin, keys, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
    high_watermark = _offsets(admin, keys, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
    last_stable = _offsets(admin, keys, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)
    return {
        "description": topic.description,
        "settings": dict(topic.settings),
        "partitions": [
            {"log_start_offset": a, "last_stable_offset": b, "high_watermark": c}
            for a, b, c in zip(start, last_stable, high_watermark, strict=True)
        ],
    }


def _offsets(
    admin: AdminClient, keys: Sequence[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
) -> list[int]:
    found = admin.list_offsets(dict.fromkeys(keys, spec), isolation_level=isolation)
    return [found[key].result(_WAIT_S).offset for key in keys]


def _copy_log_dir(source: Path, target: Path, keep: Callable[[str], bool]) -> None:
    """The stopped broker's log dir with the partition directories that `keep` names, and all checkpoint files."""
    target.mkdir(parents=True)
    for path in sorted(source.iterdir()):
        if path.is_dir() and keep(path.name):
            shutil.copytree(path, target / path.name, copy_function=shutil.copy2)
        elif path.is_file() and path.name != ".lock":
            shutil.copy2(path, target / path.name)


def _store(version: str, tree: Path, entry: dict[str, Any], out: Path) -> None:
    (out / "dump").mkdir(parents=True, exist_ok=True)
    with tarfile.open(out / f"{version}.tar.xz", "w:xz", format=tarfile.PAX_FORMAT, preset=9) as tar:
        for name in ("logs", "compacted"):
            tar.add(tree / name, name, filter=_anonymous)
    (out / "dump" / f"{version}.txt.xz").write_bytes(lzma.compress(_dump(version, tree).encode(), preset=9))
    path = out / "manifest.json"
    manifests = json.loads(path.read_text()) if path.exists() else {}
    manifests[version] = entry
    path.write_text(json.dumps(dict(sorted(manifests.items())), indent=1, ensure_ascii=False) + "\n")


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _dump(version: str, tree: Path) -> str:
    texts = []
    for suffix, options in DUMP_OPTIONS.items():
        paths = (path.relative_to(tree) for path in sorted(tree.glob(f"*/*/*{suffix}")))
        # Internal topics hold other record formats; an empty index makes the tool fail on some versions.
        files = [str(path) for path in paths if not path.parent.name.startswith("__") and (tree / path).stat().st_size]
        texts += [dump_log_segments(version, tree, files[at : at + 400], *options) for at in range(0, len(files), 400)]
    return "".join(texts)


def _property(path: Path, name: str) -> str:
    found = re.search(rf"^{re.escape(name)}=(.+)$", path.read_text(), re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{path} has no {name}")
    return found.group(1)


def _wait(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S  # noqa: TID251 - a real broker has no other clock
    while not condition():
        if time.monotonic() > deadline:  # noqa: TID251
            raise RuntimeError(f"waited {_WAIT_S:.0f} s in vain until {what}")
        time.sleep(0.2)  # noqa: TID251


if __name__ == "__main__":
    main()
