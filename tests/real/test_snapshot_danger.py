"""What a broker that lost its producer snapshots does, and that healing prevents it: retries and open transactions.

One log, written once per version: producer `a` writes and falls silent, transaction `t` is begun and left open, then a
third producer fills segment after segment. The clean copy of the stopped broker then loses its snapshots.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from producer_state.snapshot import ProducerEntry, read_snapshot
from tests.real.product import json_lines, run_installed, run_program
from tests.real.stored_batches import (
    Produced,
    StoredBatch,
    last_data_batch,
    segment_bases,
    send_again,
    stored_batches,
)
from tests.real.topics import committed_offsets, create_topic, end_offset, write
from tests.servers.kafka import KafkaBroker
from tests.snapshot_files import write_snapshot

pytestmark = [pytest.mark.real, pytest.mark.slow]

TOPIC = "payments"
EMPTY = write_snapshot([])
SCRIPT = f"""
producer a
producer t transactional.id=t transaction.timeout.ms=900000
producer filler
send a {TOPIC} 0 30
begin t
send t {TOPIC} 0 12
send filler {TOPIC} 0 400
"""
# A producer that comes back with this transactional id aborts what its predecessor left open.
ABORT_SCRIPT = "producer t transactional.id=t\nclose t\n"


@dataclass(frozen=True)
class Written:
    """A stopped broker's directory. `retried`: the last batch of `a`; `open_batches`: those of the open transaction."""

    version: str
    directory: Path
    retried: StoredBatch
    open_batches: tuple[StoredBatch, ...]
    end_offset: int


@dataclass(frozen=True)
class Outcome:
    """What became of the retry and of the open transaction, as a client sees it."""

    last_stable_offset: int
    answer: Produced
    copies: int
    aborted_records_read: int


@pytest.fixture(scope="module", params=[pytest.param("3.9.1", marks=pytest.mark.apart), "4.3.0"])
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    scratch = tmp_path_factory.mktemp("written")
    with KafkaBroker(request.param, scratch / "kafka") as broker:
        create_topic(broker, TOPIC, segment_bytes=16384)
        write(broker, SCRIPT, scratch)
    partition = broker.log_dirs[0] / f"{TOPIC}-0"
    batches = stored_batches(partition)
    transactional = tuple(batch for batch in batches if batch.transactional)
    retried = last_data_batch(batches, batches[0].producer_id)
    assert len(segment_bases(partition)) >= 4
    assert {retried.segment_base_offset, *(batch.segment_base_offset for batch in transactional)} == {0}
    return Written(broker.version, broker.directory, retried, transactional, batches[-1].last_offset + 1)


@pytest.fixture(name="broker")
def _broker(written: Written, tmp_path: Path) -> Iterator[KafkaBroker]:
    """The stopped broker's copy, without producer snapshots: as restored from a backup of the logs alone."""
    shutil.copytree(written.directory, tmp_path / "kafka", copy_function=shutil.copy2)
    broker = KafkaBroker(written.version, tmp_path / "kafka")
    for path in partition_of(broker).glob("*.snapshot"):
        path.unlink()
    yield broker
    broker.close()


def partition_of(broker: KafkaBroker) -> Path:
    return broker.log_dirs[0] / f"{TOPIC}-0"


def outcome(broker: KafkaBroker, written: Written, scratch: Path) -> Outcome:
    """Sends the retry, then aborts the transaction and reads all that is committed."""
    last_stable_offset = end_offset(broker, TOPIC, committed=True)
    answer = send_again(broker.port, TOPIC, 0, written.retried)
    write(broker, ABORT_SCRIPT, scratch)
    copies = [batch for batch in stored_batches(partition_of(broker)) if batch.identity == written.retried.identity]
    aborted = {offset for batch in written.open_batches for offset in range(batch.base_offset, batch.last_offset + 1)}
    read = committed_offsets(broker, TOPIC)
    return Outcome(last_stable_offset, answer, len(copies), len(aborted.intersection(read)))


def as_it_should_be(written: Written) -> Outcome:
    return Outcome(
        last_stable_offset=written.open_batches[0].base_offset,
        answer=Produced(error_code=0, base_offset=written.retried.base_offset),
        copies=1,
        aborted_records_read=0,
    )


def test_a_healed_broker_knows_the_retry_and_the_open_transaction(
    written: Written, broker: KafkaBroker, tmp_path: Path
) -> None:
    done = run_installed({}, "snapshots", "heal", str(broker.log_dirs[0]))
    assert done.returncode == 0, done.stderr
    bases = segment_bases(partition_of(broker))
    assert sorted(int(path.stem) for path in partition_of(broker).glob("*.snapshot")) == bases[1:]
    broker.start()
    assert outcome(broker, written, tmp_path) == as_it_should_be(written)


def test_a_broker_without_snapshots_appends_the_retry_and_publishes_the_open_transaction(
    written: Written, broker: KafkaBroker, tmp_path: Path
) -> None:
    broker.start()
    # Its own idea of what to do about missing snapshots after a clean shutdown.
    found = sorted(partition_of(broker).glob("*.snapshot"))
    assert [path.read_bytes() for path in found] == [EMPTY] * 3
    aborted_count = sum(batch.last_offset - batch.base_offset + 1 for batch in written.open_batches)
    assert outcome(broker, written, tmp_path) == Outcome(
        last_stable_offset=written.end_offset,
        answer=Produced(error_code=0, base_offset=written.end_offset),
        copies=2,
        aborted_records_read=aborted_count,
    )


def test_empty_snapshots_that_a_broker_made_up_are_found_and_replaced_on_demand(
    written: Written, broker: KafkaBroker, tmp_path: Path
) -> None:
    broker.start()
    broker.stop()
    made_up = sorted(path.name for path in partition_of(broker).glob("*.snapshot"))
    status, results = checked(broker)
    assert (status, results.count("wrong")) == (4, 3)
    done = run_program({}, "snapshots", "heal", "--replace-empty", str(broker.log_dirs[0]))
    assert done.returncode == 0, done.stderr
    for name in made_up:
        assert read_snapshot((partition_of(broker) / name).read_bytes())
        assert (partition_of(broker) / f"{name}.empty").read_bytes() == EMPTY
    status, results = checked(broker)
    assert (status, set(results)) == (0, {"equal"})
    broker.start()
    assert outcome(broker, written, tmp_path) == as_it_should_be(written)


def test_a_partition_of_one_segment_and_no_snapshot_is_given_one_at_the_logs_end(tmp_path: Path) -> None:
    with KafkaBroker("4.3.0", tmp_path / "kafka") as broker:
        create_topic(broker, TOPIC, segment_bytes=1 << 20)
        write(broker, SCRIPT, tmp_path)
        broker.stop()
        batches = stored_batches(partition_of(broker))
        transactional = tuple(batch for batch in batches if batch.transactional)
        end = batches[-1].last_offset + 1
        retried = last_data_batch(batches, batches[0].producer_id)
        written = Written(broker.version, broker.directory, retried, transactional, end)
        assert segment_bases(partition_of(broker)) == [0]
        for path in partition_of(broker).glob("*.snapshot"):
            path.unlink()
        done = run_program({}, "snapshots", "heal", str(broker.log_dirs[0]))
        assert done.returncode == 0, done.stderr
        assert [int(path.stem) for path in partition_of(broker).glob("*.snapshot")] == [end]
        broker.start()
        assert outcome(broker, written, tmp_path) == as_it_should_be(written)


def checked(broker: KafkaBroker) -> tuple[int, list[str]]:
    """Exit status of `snapshots check`, and its verdict on each snapshot of the topic."""
    done = run_program({}, "snapshots", "check", "--json", str(partition_of(broker)))
    (report,) = json_lines(done)
    return done.returncode, [snapshot["result"] for snapshot in report["snapshots"]]


ENDED = ProducerEntry(4242, 0, 4, 8, 0, 1_000, 0, 5)
"""In a transaction of offsets 5 to 8. It has ended: a cleaner took all batches and the marker, and the log begins above."""


@pytest.mark.parametrize("command", ["", "heal", "rebuild", "compact"])
def test_a_broker_publishes_what_follows_a_transaction_without_marker_by_snapshots_of_ours(
    written: Written, broker: KafkaBroker, tmp_path: Path, command: str
) -> None:
    partition, log_dir = partition_of(broker), broker.log_dirs[0]
    first, start, *above = segment_bases(partition)
    for path in partition.glob(f"{first:020d}.*"):
        path.unlink()
    (log_dir / "log-start-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 {start}\n")
    (log_dir / "cleaner-offset-checkpoint").write_text(f"0\n1\n{TOPIC} 0 {above[-1]}\n")
    # A broker wrote them before the transaction ended. `heal` creates missing ones, and replaces none.
    for base in (start, *above) if command != "heal" else (start,):
        (partition / f"{base:020d}.snapshot").write_bytes(write_snapshot([ENDED]))
    write_with(command, partition, tmp_path / "out" / partition.name)
    broker.start()
    last_stable_offset = written.end_offset if command else start
    assert end_offset(broker, TOPIC, committed=False) == written.end_offset
    assert end_offset(broker, TOPIC, committed=True) == last_stable_offset


def write_with(command: str, partition: Path, out: Path) -> None:
    """Have a command write the snapshots of a partition, or all of it; "" for none."""
    commands = {
        "heal": ("snapshots", "heal", str(partition.parent)),
        "rebuild": ("snapshots", "rebuild", str(partition), "--out", str(out)),
        "compact": ("compact", str(partition), "--out", str(out), "--engine", "local"),
    }
    if command:
        done = run_installed({}, *commands[command])
        assert done.returncode == 0, done.stderr
    if command == "compact":
        shutil.rmtree(partition)
    if out.exists():
        shutil.copytree(out, partition, dirs_exist_ok=True, copy_function=shutil.copy2)
