"""Broker-written partitions in a real S3 server: compacted by each strategy, by offset twice; Kafka's tools read the result."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.gc import collect_garbage
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.model import ObjectKey
from sidecar.ports import ObjectStore
from sidecar.storage.store_clock import read_store_clock
from sidecar.verify.verify import verify_archive
from tests.fakes.manual_clock import ManualClock
from tests.golden import split_dumps, wall_clock_ms
from tests.real.product import cut_out, json_lines, run_program, s3_settings, store_of
from tests.runner.archives import WRITER, reference_logs_of
from tests.runner.rig import archived_states, copy_partitions
from tests.servers.kafka_java import dump_log_segments
from tests.servers.versitygw import VersityGateway

pytestmark = pytest.mark.real

NOW_MS = wall_clock_ms("4.3.0") + 10 * 86_400_000
SMALL = 9_000
VERSION = "version"
VERSIONED = "changes-0"
KEYS = 40


def add_versioned(log_dir: Path) -> None:
    """A topic in which versions go down, and times too for every second key: each strategy keeps other records."""
    directory = log_dir / VERSIONED
    directory.mkdir()
    for turn in range(4):
        base = turn * KEYS
        records = [
            Record(
                base + key,
                NOW_MS - 86_400_000 + (turn if key % 2 else -turn),
                b"key-%d" % key,
                b"turn-%d" % turn,
                ((VERSION, (9 - turn).to_bytes(8)),),
            )
            for key in range(KEYS)
        ]
        (directory / f"{base:020d}.log").write_bytes(build_batch(records, leader_epoch=0))
    topic, _, partition = VERSIONED.rpartition("-")
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        version, count, *lines = (log_dir / name).read_text().splitlines()
        lines.append(f"{topic} {partition} {4 * KEYS}")
        (log_dir / name).write_text("\n".join([version, str(int(count) + 1), *lines, ""]))


def test_archived_partitions_become_what_the_reference_says_and_kafka_reads_them(
    gateway: VersityGateway, tmp_path: Path
) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0", "transactions-0", "compacted-0")
    add_versioned(log_dir)
    places = {strategy: f"s3://{gateway.bucket}/{tmp_path.name}-{strategy}" for strategy in Strategy}
    common = {"run.state_dir": str(tmp_path / "state"), **s3_settings(gateway)}
    common |= {"broker.settle_ms": "0", "broker.snapshot_grace_ms": "0"}
    by_strategy = {strategy: {**common, "store.url": url} for strategy, url in places.items()}
    done = run_program(
        by_strategy[Strategy.OFFSET], "backfill", "--log-dir", str(log_dir), "--assume-leader", "--topic", ".*"
    )
    assert done.returncode == 0, done.stderr
    kept: dict[Strategy, list[bytes]] = {}
    for strategy in (Strategy.TIMESTAMP, Strategy.HEADER, Strategy.OFFSET):
        settings = by_strategy[strategy]
        with store_of(by_strategy[Strategy.OFFSET]) as archived, store_of(settings) as store:
            if strategy is not Strategy.OFFSET:
                # Where strategies differ.
                for facts in archived.list(""):
                    if f"/{VERSIONED.removesuffix('-0')}/" in facts.key or "/compacted/" in facts.key:
                        store.put_if_absent(facts.key, archived.read(facts.key))
            kept[strategy] = compact_as_reference(store, settings, strategy)[VERSIONED]
            if strategy is Strategy.OFFSET:
                purge(store)  # Until then, a compaction that drops no record keeps the undo.
                kept[strategy] = compact_as_reference(store, settings, strategy)[VERSIONED]
                states = archived_states(store)
                chosen = {name: states[name] for name in (VERSIONED, "compacted-0", "transactions-0")}
                assert_kafka_reads(tmp_path / "read", cut_out(store, chosen, tmp_path / "read" / "logs"))
            assert all(found.is_sound for found in verify_archive(store, ManualClock(NOW_MS), deep=True))
    assert len({b"".join(logs) for logs in kept.values()}) == len(Strategy)


def purge(store: ObjectStore) -> None:
    """As `gc` does it when the grace period is over."""
    now_ms = read_store_clock(store, SystemClock()).store_ms + 1_000
    for state in archived_states(store).values():
        root = state.lineage.root
        assert collect_garbage(store, root, SystemClock(), WRITER, store_now_ms=now_ms, grace_period_ms=0).removed


def compact_as_reference(store: ObjectStore, settings: Mapping[str, str], strategy: Strategy) -> dict[str, list[bytes]]:
    """Run the command; by partition the logs it left, which are those of the reference."""
    rules = CompactionRules(NOW_MS, strategy=strategy, header=VERSION, segment_bytes=SMALL)
    options = ["--strategy", str(strategy), *(["--header", VERSION] if strategy is Strategy.HEADER else [])]
    options += ["--now-ms", str(NOW_MS), "--segment-bytes", str(SMALL), "--engine", "local", "--json", "--quiet"]
    before = archived_states(store)
    done = run_program(settings, "compact", "--archive", settings["store.url"], "--topic", ".*", *options)
    assert done.returncode == 0, done.stderr
    after = archived_states(store)
    found = {}
    for row in json_lines(done):
        name = f"{row['topic']}-{row['partition']}"
        groups = [len(segment["sources"]) for segment in row["segments"]]
        live = after[name].segments[: len(groups)]
        found[name] = [store.read(ObjectKey(f"{after[name].lineage.root}/{s.log_key}")) for s in live]
        assert found[name] == reference_logs_of(store, before[name], rules, groups), name
    return found


def assert_kafka_reads(directory: Path, written: list[Path]) -> None:
    """The dump tool looks each index up in the log beside it, and checks every batch."""
    # One JVM for all of them; options for logs do no harm to the others. It fails on empty indexes.
    files = [f"logs/{path}" for path in written if (directory / "logs" / path).stat().st_size]
    assert {Path(file).suffix for file in files} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    text = dump_log_segments("4.3.0", directory, files, "--deep-iteration", "--print-data-log")
    assert len(split_dumps(text)) == len(files)
    assert [line for line in text.splitlines() if "ismatch" in line or "isvalid: false" in line] == []
