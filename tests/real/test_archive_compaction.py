"""Broker-written partitions in a real S3 server: compacted by each strategy, by offset twice; Kafka's tools read the result."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.compaction.rules import CompactionRules, Strategy
from sidecar.model import ObjectKey
from tests.golden import golden, split_dumps, wall_clock_ms
from tests.golden.generate import DUMP_OPTIONS
from tests.pipeline.archives import reference_logs_of
from tests.pipeline.rig import archived_states
from tests.real.product import cut_out, json_lines, run_program, s3_settings, store_of
from tests.servers.kafka_java import dump_log_segments
from tests.servers.versitygw import VersityGateway

pytestmark = pytest.mark.real

NOW_MS = wall_clock_ms("4.3.0") + 10 * 86_400_000
SMALL = 9_000


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersityGateway]:
    with VersityGateway(tmp_path_factory.mktemp("versitygw"), options=["--quiet"]) as server:
        yield server


def test_archived_partitions_become_what_the_reference_says_and_kafka_reads_them(
    gateway: VersityGateway, tmp_path: Path
) -> None:
    for strategy in Strategy:
        settings = {
            "run.state_dir": str(tmp_path / f"state-{strategy}"),
            **s3_settings(gateway),
            "store.url": f"s3://{gateway.bucket}/{tmp_path.name}-{strategy}",
        }
        log_dir = str(golden("4.3.0") / "logs")
        topics = ["--topic", "orders", "--topic", "transactions", "--topic", "compacted"]
        done = run_program(settings, "backfill", "--log-dir", log_dir, "--assume-leader", "--json", *topics)
        assert done.returncode == 0, done.stderr
        rules = CompactionRules(NOW_MS, strategy=strategy, header="h1", segment_bytes=SMALL)
        options = ["--strategy", str(strategy), *(["--header", "h1"] if strategy is Strategy.HEADER else [])]
        options += ["--now-ms", str(NOW_MS), "--segment-bytes", str(SMALL), "--engine", "local", "--json", "--quiet"]
        with store_of(settings) as store:
            for _ in range(2 if strategy is Strategy.OFFSET else 1):  # The second time over what the first one left.
                before = archived_states(store)
                done = run_program(settings, "compact", "--archive", settings["store.url"], "--topic", ".*", *options)
                assert done.returncode == 0, done.stderr
                after = archived_states(store)
                for row in json_lines(done):
                    name = f"{row['topic']}-{row['partition']}"
                    groups = [len(segment["sources"]) for segment in row["segments"]]
                    expected = reference_logs_of(store, before[name], rules, groups)
                    live = after[name].segments[: len(groups)]
                    found = [store.read(ObjectKey(f"{after[name].lineage.root}/{s.log_key}")) for s in live]
                    assert found == expected, name
            written = cut_out(store, after, tmp_path / str(strategy) / "logs")
        if strategy is Strategy.OFFSET:
            assert_kafka_reads(tmp_path / str(strategy), written)
        done = run_program(settings, "verify", "--archive", settings["store.url"], "--deep")
        assert done.returncode == 0, done.stdout


def assert_kafka_reads(directory: Path, written: list[Path]) -> None:
    """The dump tool looks each index up in the log beside it, and checks every batch."""
    for suffix, options in DUMP_OPTIONS.items():
        files = [f"logs/{path}" for path in written if path.suffix == suffix]
        if files:
            text = dump_log_segments("4.3.0", directory, files, *options)
            assert len(split_dumps(text)) == len(files)
            assert [line for line in text.splitlines() if "ismatch" in line or "isvalid: false" in line] == []
