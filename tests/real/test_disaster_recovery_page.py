"""The drill of docs/how-to/disaster-recovery.md, its commands taken from the page and run in their order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.golden import golden
from tests.real.product import run_installed, run_program, s3_settings
from tests.real.reading_back import expected_reads
from tests.servers.kafka import KafkaBroker
from tests.servers.kafka_java import kafka_tool
from tests.servers.versitygw import VersityGateway

pytestmark = [pytest.mark.real, pytest.mark.slow]

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "disaster-recovery.md").read_text(encoding="utf-8")
VERSION = "4.3.0"
TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
}
PARTITIONS = (0, 1)
ABOVE_THE_END, OLD_EPOCH = 1_000_000, 9
STOP, START = "# the broker is stopped", "# the broker is started"


def lines() -> list[str]:
    """Every line of the page's shell blocks."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_the_drill_brings_back_what_was_archived(tmp_path: Path) -> None:
    source = golden(VERSION) / "logs"
    printed: dict[str, str] = {}
    corrected: list[TopicPartition] = []
    with VersityGateway(tmp_path / "s3", bucket="bucket") as gateway:
        settings = {**s3_settings(gateway), "run.state_dir": str(tmp_path / "state"), "broker.settle_ms": "0"}
        archived = ["--archive", "s3://bucket/prefix", "--log-dir", str(source), "--topic", "orders"]
        done = run_installed(settings, "backfill", "--assume-leader", *archived)
        assert done.returncode == 0, done.stderr
        broker = KafkaBroker(VERSION, tmp_path / "kafka", properties={"log.retention.ms": "-1"})
        with broker:
            for line in lines():
                if line == STOP:
                    broker.stop()
                elif line == START:
                    broker.start()
                elif line.startswith("kafka-consumer-groups.sh"):
                    corrected += corrected_offsets(line, broker, settings)
                else:
                    printed[line] = run(line, broker, settings)
    offsets = dict(re.findall(r"^orders:(\d+):(\d+)$", found(printed, "kafka-get-offsets.sh"), re.MULTILINE))
    ends = dict(re.findall(r"^ *orders-(\d+) +\S+ +\d+ +(\d+)", found(printed, "tiered-sidecar status"), re.MULTILINE))
    assert offsets == ends
    assert {str(partition) for partition in PARTITIONS} == set(offsets)
    assert {str(one.partition): (str(one.offset), one.leader_epoch) for one in corrected} == {
        number: (end, None) for number, end in ends.items()
    }
    read = len(found(printed, "kafka-console-consumer.sh").splitlines())
    assert read == sum(len(expected_reads(source / f"orders-{number}", int(end))[1]) for number, end in ends.items())


def corrected_offsets(line: str, broker: KafkaBroker, settings: dict[str, str]) -> list[TopicPartition]:
    """What a group has committed after this line, if it had committed in the old cluster, above what was archived."""
    group = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing", "log_level": 0})
    old = [TopicPartition("orders", number, ABOVE_THE_END, leader_epoch=OLD_EPOCH) for number in PARTITIONS]
    group.commit(offsets=old, asynchronous=False)
    assert [one.leader_epoch for one in group.committed(old, timeout=60)] == [OLD_EPOCH] * len(old)
    run(line, broker, settings)
    committed = group.committed(old, timeout=60)
    group.close()
    return committed


def run(line: str, broker: KafkaBroker, settings: dict[str, str]) -> str:
    """What a line of the page prints, with the addresses of this machine."""
    here = line.replace("localhost:9092", broker.bootstrap).replace("/var/lib/kafka/data", str(broker.log_dirs[0]))
    program, *arguments = shlex.split(here)
    if program in TOOLS:
        return kafka_tool(VERSION, TOOLS[program], *arguments)
    assert program == "tiered-sidecar", line
    done = run_program(settings, *arguments)
    assert done.returncode == 0, f"{line}: {done.stderr}{done.stdout}"
    return done.stdout


def found(printed: dict[str, str], command: str) -> str:
    """What the one line with this command has printed."""
    (text,) = (text for line, text in printed.items() if line.startswith(command))
    return text
