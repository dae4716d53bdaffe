"""What a broker that lost its producer snapshots does, and that healing prevents it: retries and open transactions.

Logs of one broker, a topic for each story: producer `a` writes and falls silent, a transaction is begun and left open, then a third
producer fills segment after segment. The stopped broker loses their snapshots, each log is given what its story says, and the
broker starts again, once for all of them. Another log is replaced by what `compact` wrote: it is read, and producers go on.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from producer_state.snapshot import ProducerEntry, read_snapshot
from sidecar.host.log_dir_lock import LogDirLock
from sidecar.logformat.batches import scan_file
from sidecar.logformat.bodies.records import read_records
from tests.real.product import json_lines, run_installed, run_program
from tests.real.stored_batches import (
    Produced,
    StoredBatch,
    last_data_batch,
    segment_bases,
    send_again,
    stored_batches,
)
from tests.real.test_broker_facts import produce
from tests.real.topics import committed_offsets, create_topic, end_offset, write
from tests.servers import ServerError
from tests.servers.kafka import KafkaBroker
from tests.snapshot_files import write_snapshot

pytestmark = [pytest.mark.real, pytest.mark.slow]

EMPTY = write_snapshot([])
HEALED, SHORT, BARE, MADE_UP = "healed", "short", "bare", "made-up"
"""Healed with many segments, and with one alone; not healed; healed where the broker has made up empty ones."""
ACCOUNTS = "accounts"
ACCOUNTS_SCRIPT = f"""
producer early
producer z compression.type=zstd
producer t transactional.id=t
send early {ACCOUNTS} 0 150 keys=20 tombstones=7
begin t
send t {ACCOUNTS} 0 40 keys=20
abort t
send z {ACCOUNTS} 0 400 keys=30
begin t
send t {ACCOUNTS} 0 60 keys=40
commit t
send z {ACCOUNTS} 0 300 keys=30
"""
WRITERS = ("none", "heal", "rebuild", "compact")
SEGMENT_BYTES = 16384


def ended(writer: str) -> str:
    """The topic whose snapshots tell of a transaction that has ended, before this command wrote others."""
    return f"ended-{writer}"


def script() -> str:
    """Each topic but the last ones has a transaction of its name. A producer that comes back with it aborts what was left open."""
    lines = ["producer a", "producer filler"]
    for topic in (HEALED, SHORT, BARE, MADE_UP):
        lines += [f"producer {topic} transactional.id={topic} transaction.timeout.ms=900000"]
        lines += [f"send a {topic} 0 30", f"begin {topic}", f"send {topic} {topic} 0 12", f"send filler {topic} 0 400"]
    for topic in map(ended, WRITERS):
        lines += [f"send a {topic} 0 30", f"send filler {topic} 0 400"]
    return "\n".join([*lines, ACCOUNTS_SCRIPT])


@dataclass(frozen=True)
class Written:
    """A log. `retried`: the last batch of `a`; `open_batches`: those of the open transaction; `bases`: of its segments."""

    retried: StoredBatch
    open_batches: tuple[StoredBatch, ...]
    end_offset: int
    bases: tuple[int, ...]

    @classmethod
    def of(cls, partition: Path) -> Written:
        batches = stored_batches(partition)
        transactional = tuple(batch for batch in batches if batch.transactional)
        retried = last_data_batch(batches, batches[0].producer_id)
        assert {retried.segment_base_offset, *(batch.segment_base_offset for batch in transactional)} == {0}
        return cls(retried, transactional, batches[-1].last_offset + 1, tuple(segment_bases(partition)))


@dataclass(frozen=True)
class Outcome:
    """What became of the retry and of the open transaction, as a client sees it."""

    last_stable_offset: int
    answer: Produced
    copies: int
    aborted_records_read: int


@dataclass(frozen=True)
class Log:
    """As clients see one: offsets of committed records, end offset and last stable offset."""

    committed: list[int]
    ends: tuple[int, int]

    @classmethod
    def of(cls, broker: KafkaBroker, topic: str) -> Log:
        ends = end_offset(broker, topic), end_offset(broker, topic, committed=True)
        return cls(committed_offsets(broker, topic), ends)


@dataclass(frozen=True)
class Compacted:
    """A log before and after. `keys`: of what was before, by offset; `active`: base of the segment that was left alone.

    `behind`: what a consumer is given who begins at `removed`. `retried`, `answer`: the last batch of a producer all of whose
    records are gone, and what the broker said when it came again. `more_end`: end offset behind five more records.
    """

    before: Log
    after: Log
    keys: dict[int, bytes]
    report: dict[str, Any]
    removed: int
    behind: list[int]
    retried: StoredBatch
    answer: Produced
    more_end: int

    @property
    def active(self) -> int:
        return int(self.report["left_alone"][0])


@dataclass(frozen=True)
class Seen:
    """What was seen of the broker, and what the program said to it.

    `given`: the snapshots that a log had before the start, by offset. `ends`: end offset and last stable offset behind the start.
    `refused`: of `heal` while the broker ran, and when it had been killed. `checked`: exit status and verdicts of `check`.
    """

    written: dict[str, Written]
    outcomes: dict[str, Outcome]
    given: dict[str, list[int]]
    of_the_broker: list[bytes]
    ends: dict[str, tuple[int, int]]
    refused: dict[str, subprocess.CompletedProcess[str]]
    locked_out: str
    checked: list[tuple[int, list[str]]]
    replaced: dict[str, tuple[bytes, bytes]]
    compacted: Compacted


def partition_of(broker: KafkaBroker, topic: str) -> Path:
    return broker.log_dirs[0] / f"{topic}-0"


def snapshots_of(broker: KafkaBroker, topic: str) -> list[Path]:
    return sorted(partition_of(broker, topic).glob("*.snapshot"))


@pytest.fixture(scope="module", params=[pytest.param("3.9.1", marks=pytest.mark.apart), "4.3.0"])
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    scratch = tmp_path_factory.mktemp("danger")
    broker = KafkaBroker(request.param, scratch / "kafka")
    (log_dir,) = broker.log_dirs
    topics = [HEALED, SHORT, BARE, MADE_UP, *map(ended, WRITERS)]
    with broker:
        for topic in (*topics, ACCOUNTS):
            create_topic(broker, topic, 1 << 20 if topic == SHORT else SEGMENT_BYTES)
        write(broker, script(), scratch)
        accounts = Log.of(broker, ACCOUNTS)
        broker.stop()
        keys, retried, report = compact(partition_of(broker, ACCOUNTS), scratch / "out")
        written = {topic: Written.of(partition_of(broker, topic)) for topic in topics}
        for topic in topics:
            for path in snapshots_of(broker, topic):
                path.unlink()
        write_checkpoints(log_dir, written)
        for writer in WRITERS:
            end_transaction(broker, writer, scratch)
        healed = run_installed({}, "snapshots", "heal", "--topic", f"{HEALED}|{SHORT}|{ended('heal')}", str(log_dir))
        assert healed.returncode == 0, healed.stderr
        given = {topic: [int(path.stem) for path in snapshots_of(broker, topic)] for topic in topics}
        with LogDirLock(log_dir), pytest.raises(ServerError):
            broker.start()
        locked_out = broker.log_text()

        broker.start()
        heal = ("snapshots", "heal", str(log_dir))
        refused = {"running": run_program({}, *heal)}
        of_the_broker = [path.read_bytes() for path in snapshots_of(broker, BARE)]
        ends = {
            topic: (end_offset(broker, topic), end_offset(broker, topic, committed=True))
            for topic in map(ended, WRITERS)
        }
        outcomes = outcomes_of(broker, written, [HEALED, SHORT, BARE])
        compacted = Compacted(accounts, Log.of(broker, ACCOUNTS), keys, report, *go_on(broker, accounts, retried))
        broker.stop()

        checked = [verdicts(partition_of(broker, MADE_UP))]
        made_up = snapshots_of(broker, MADE_UP)
        done = run_program({}, *heal, "--topic", MADE_UP, "--replace-empty")
        assert done.returncode == 0, done.stderr
        replaced = {
            path.name: (path.with_name(f"{path.name}.empty").read_bytes(), path.read_bytes()) for path in made_up
        }
        checked.append(verdicts(partition_of(broker, MADE_UP)))
        broker.start()
        outcomes |= outcomes_of(broker, written, [MADE_UP])
        broker.kill()
        refused["killed"] = run_program({}, *heal)
    return Seen(written, outcomes, given, of_the_broker, ends, refused, locked_out, checked, replaced, compacted)


ENDED = ProducerEntry(4242, 0, 4, 8, 0, 1_000, 0, 5)
"""In a transaction of offsets 5 to 8. It has ended: a cleaner took all batches and the marker, and the log begins above."""


def write_checkpoints(log_dir: Path, written: dict[str, Written]) -> None:
    """A cleaner took the first segments of the last topics, and has been through up to the active ones."""
    for name, number in (("log-start-offset-checkpoint", 1), ("cleaner-offset-checkpoint", -1)):
        lines = [f"{topic} 0 {written[topic].bases[number]}\n" for topic in map(ended, WRITERS)]
        (log_dir / name).write_text(f"0\n{len(lines)}\n{''.join(lines)}")


def end_transaction(broker: KafkaBroker, writer: str, scratch: Path) -> None:
    """A log that begins at its second segment, with the snapshots of then; then with those of the command, but for `heal`."""
    partition = partition_of(broker, ended(writer))
    first, start, *above = segment_bases(partition)
    for path in partition.glob(f"{first:020d}.*"):
        path.unlink()
    # A broker wrote them before the transaction ended. `heal` creates missing ones, and replaces none.
    for base in (start, *above) if writer != "heal" else (start,):
        (partition / f"{base:020d}.snapshot").write_bytes(write_snapshot([ENDED]))
    out = scratch / "out" / partition.name
    commands = {
        "rebuild": ("snapshots", "rebuild", str(partition), "--out", str(out)),
        "compact": ("compact", str(partition), "--out", str(out), "--engine", "local"),
    }
    if writer in commands:
        done = run_program({}, *commands[writer])
        assert done.returncode == 0, done.stderr
        if writer == "compact":
            shutil.rmtree(partition)
        shutil.copytree(out, partition, dirs_exist_ok=True, copy_function=shutil.copy2)


def compact(partition: Path, out: Path) -> tuple[dict[int, bytes], StoredBatch, dict[str, Any]]:
    """Replace a log by what the command makes of it. Keys by offset and the first producer's last batch of before; the report."""
    keys = keys_by_offset(partition)
    batches = stored_batches(partition)
    target = out / partition.name
    done = run_installed({}, "compact", str(partition), "--out", str(target), "--engine", "local", "--json")
    assert done.returncode == 0, done.stderr
    shutil.rmtree(partition)
    shutil.copytree(target, partition, copy_function=shutil.copy2)
    return keys, last_data_batch(batches, batches[0].producer_id), json_lines(done)[0]


def keys_by_offset(directory: Path) -> dict[int, bytes]:
    """Keys of all records that are no markers."""
    found: dict[int, bytes] = {}
    for path in sorted(directory.glob("*.log")):
        data = path.read_bytes()
        for columns in scan_file(path):
            for row in range(len(columns)):
                begin = int(columns.position[row])
                if columns.marker_type[row] < 0:
                    records = read_records(data[begin : begin + int(columns.size_bytes[row])])
                    found |= {record.offset: record.key or b"" for record in records}
    return found


def go_on(broker: KafkaBroker, before: Log, retried: StoredBatch) -> tuple[int, list[int], StoredBatch, Produced, int]:
    """A consumer that begins at an offset that is gone, a late retry, and five new records. See `Compacted`."""
    left = committed_offsets(broker, ACCOUNTS)
    removed = next(offset for offset in before.committed if offset not in left and offset + 1 not in left)
    behind = committed_offsets(broker, ACCOUNTS, removed)
    answer = send_again(broker.port, ACCOUNTS, 0, retried)
    produce(broker, ACCOUNTS, 5)
    return removed, behind, retried, answer, end_offset(broker, ACCOUNTS)


def outcomes_of(broker: KafkaBroker, written: dict[str, Written], topics: list[str]) -> dict[str, Outcome]:
    """Sends the retries, then aborts the transactions and reads all that is committed."""
    stable = {topic: end_offset(broker, topic, committed=True) for topic in topics}
    answers = {topic: send_again(broker.port, topic, 0, written[topic].retried) for topic in topics}
    for topic in topics:
        come_back = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic, "log_level": 0})
        come_back.init_transactions(60)
    found = {}
    for topic in topics:
        retried = written[topic].retried.identity
        copies = [batch for batch in stored_batches(partition_of(broker, topic)) if batch.identity == retried]
        aborted = {
            offset
            for batch in written[topic].open_batches
            for offset in range(batch.base_offset, batch.last_offset + 1)
        }
        read = aborted.intersection(committed_offsets(broker, topic))
        found[topic] = Outcome(stable[topic], answers[topic], len(copies), len(read))
    return found


def verdicts(partition: Path) -> tuple[int, list[str]]:
    """Exit status of `snapshots check`, and its verdict on each snapshot of the partition."""
    done = run_program({}, "snapshots", "check", "--json", str(partition))
    (report,) = json_lines(done)
    return done.returncode, [snapshot["result"] for snapshot in report["snapshots"]]


def as_it_should_be(written: Written) -> Outcome:
    return Outcome(
        last_stable_offset=written.open_batches[0].base_offset,
        answer=Produced(error_code=0, base_offset=written.retried.base_offset),
        copies=1,
        aborted_records_read=0,
    )


def test_a_healed_broker_knows_the_retry_and_the_open_transaction(seen: Seen) -> None:
    written = seen.written[HEALED]
    assert len(written.bases) >= 4
    assert seen.given[HEALED] == list(written.bases[1:])
    assert seen.outcomes[HEALED] == as_it_should_be(written)


def test_a_broker_without_snapshots_appends_the_retry_and_publishes_the_open_transaction(seen: Seen) -> None:
    written = seen.written[BARE]
    assert seen.given[BARE] == []
    # Its own idea of what to do about missing snapshots after a clean shutdown.
    assert seen.of_the_broker == [EMPTY] * 3
    aborted_count = sum(batch.last_offset - batch.base_offset + 1 for batch in written.open_batches)
    assert seen.outcomes[BARE] == Outcome(
        last_stable_offset=written.end_offset,
        answer=Produced(error_code=0, base_offset=written.end_offset),
        copies=2,
        aborted_records_read=aborted_count,
    )


def test_empty_snapshots_that_a_broker_made_up_are_found_and_replaced_on_demand(seen: Seen) -> None:
    (status, results), (status_after, results_after) = seen.checked
    assert (status, results.count("wrong")) == (4, 3)
    assert seen.replaced
    for before, after in seen.replaced.values():
        assert before == EMPTY
        assert read_snapshot(after)
    assert (status_after, set(results_after)) == (0, {"equal"})
    assert seen.outcomes[MADE_UP] == as_it_should_be(seen.written[MADE_UP])


def test_a_partition_of_one_segment_and_no_snapshot_is_given_one_at_the_logs_end(seen: Seen) -> None:
    written = seen.written[SHORT]
    assert written.bases == (0,)
    assert seen.given[SHORT] == [written.end_offset]
    assert seen.outcomes[SHORT] == as_it_should_be(written)


def test_a_broker_and_healing_keep_each_other_out(seen: Seen) -> None:
    """The start that was refused has broken nothing: all else here was seen behind it."""
    assert "Failed to acquire lock on file .lock" in seen.locked_out
    assert {when: refused.returncode for when, refused in seen.refused.items()} == {"running": 1, "killed": 1}
    assert "stop the broker" in seen.refused["running"].stderr
    assert ".kafka_cleanshutdown is missing" in seen.refused["killed"].stderr


def test_a_broker_loads_a_compacted_directory(seen: Seen) -> None:
    found = seen.compacted
    assert found.report["records_after"] < found.report["records_before"] / 4
    latest = {found.keys[offset]: offset for offset in found.before.committed if offset < found.active}
    # One committed record per key, the latest; behind it the active segment as it was.
    above = [offset for offset in found.before.committed if offset >= found.active]
    assert found.after.committed == sorted(latest.values()) + above
    log_end = found.before.ends[0]
    assert found.after.ends == (log_end, log_end)
    # An offset whose record is gone is a position still: whoever begins there is given the next record.
    assert found.behind == [offset for offset in found.after.committed if offset > found.removed]
    # A late retry of a producer whose last batch lost all its records is still known for one.
    assert found.answer == Produced(0, found.retried.base_offset)
    assert found.more_end == log_end + 5


@pytest.mark.parametrize("writer", WRITERS)
def test_a_broker_publishes_what_follows_a_transaction_without_marker_by_snapshots_of_ours(
    seen: Seen, writer: str
) -> None:
    written = seen.written[ended(writer)]
    last_stable_offset = written.bases[1] if writer == "none" else written.end_offset
    assert seen.ends[ended(writer)] == (written.end_offset, last_stable_offset)
