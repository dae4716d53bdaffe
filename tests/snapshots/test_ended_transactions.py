"""Transactions that a snapshot names, and of which neither a batch nor the marker is in the log any more.

Retention or the cleaner took the batches. No batch is left that would keep the marker, so that the cleaner takes it, too.
Source: CleanedTransactionMetadata.onControlBatchRead, UnifiedLog.deleteSegments.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from producer_state.replay import replay as replay_batches
from producer_state.snapshot import ProducerEntry, read_snapshot
from producer_state.table import ProducerTable
from sidecar.broker.files import FileBrokerFacts
from sidecar.compaction.rules import CompactionRules
from sidecar.config.topic_filter import TopicFilter
from sidecar.host.placing import TEMPORARY_SUFFIX
from sidecar.logformat.batches import scan_bytes
from sidecar.logformat.bodies.building import build_batch, build_marker
from sidecar.logformat.bodies.record import Record
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.segment.archived_objects import table_at_end
from sidecar.snapshots import Replay
from sidecar.snapshots.check import MISLEADING, CheckedSnapshot, Result, check
from sidecar.snapshots.jobs import Forgetting
from sidecar.snapshots.rebuild import rebuild
from sidecar.snapshots.resolve_paths import find_targets
from tests.compaction.directories import compacted
from tests.compaction.reference.batches import decode_segment
from tests.compaction.reference.values import ReferenceSegment
from tests.fakes.memory_store import MemoryStore
from tests.retention.test_pinned_logs import Answering
from tests.runner.rig import archive, archived_states, copy_partitions, tools_for
from tests.segment.made_logs import NOW_MS as SEGMENTS_MS
from tests.segment.made_logs import roll
from tests.segment.test_cleaned_transactions import cleaned, random_log
from tests.segment.test_markers_that_the_cleaner_took import data, replayed
from tests.snapshot_files import write_snapshot
from tests.snapshots.log_dirs import DAY_MS, NOW_MS, healed, tree

PRODUCER, BEGUN = 7, 50
AT_START = ProducerEntry(PRODUCER, 0, 4, 60, 0, NOW_MS - 5000, 2, BEGUN)
ENDED = ProducerEntry(PRODUCER, 0, 4, 60, 0, NOW_MS - 4000, 2)


def plain(offset: int) -> bytes:
    return build_batch([Record(offset, NOW_MS - 1000, b"k%d" % offset, b"v")])


def in_transaction(offset: int, *, sequence: int) -> bytes:
    """A batch of one record, of a transaction of the producer."""
    return build_batch(
        [Record(offset, NOW_MS - 1000, b"k", b"v")],
        producer_id=PRODUCER,
        producer_epoch=0,
        base_sequence=sequence,
        transactional=True,
    )


def put_snapshot(directory: Path, offset: int, *entries: ProducerEntry) -> None:
    (directory / f"{offset:020d}.snapshot").write_bytes(write_snapshot(entries))


@pytest.fixture(name="log_dir")
def _log_dir(tmp_path: Path) -> Path:
    """Segments 100, 200 and 300. The marker was between 101 and 199, and is gone."""
    directory = tmp_path / "logs" / "t-0"
    directory.mkdir(parents=True)
    for base, offsets in {100: (101, 199), 200: (200, 299), 300: (300,)}.items():
        (directory / f"{base:020d}.log").write_bytes(b"".join(map(plain, offsets)))
    put_snapshot(directory, 100, AT_START)
    put_snapshot(directory, 200, ENDED)
    (directory.parent / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 200\n")
    (directory.parent / ".lock").touch()
    (directory.parent / ".kafka_cleanshutdown").touch()
    return directory.parent


def verdict_at(log_dir: Path, offset: int) -> Result:
    report = check(find_targets([log_dir], TopicFilter()), LocalEngine(1), Forgetting(NOW_MS, DAY_MS))
    return next(found.result for found in report.partitions[0].snapshots if found.offset == offset)


def open_in(path: Path) -> list[int | None]:
    return [entry.current_txn_first_offset for entry in read_snapshot(path.read_bytes())]


def test_the_snapshot_that_knows_its_end_is_right(log_dir: Path) -> None:
    assert verdict_at(log_dir, 200) is Result.PERMISSIBLE
    begun_again = ProducerEntry(PRODUCER, 0, 5, 150, 0, NOW_MS - 1000, 2, 150)
    put_snapshot(log_dir / "t-0", 200, begun_again)
    batch = in_transaction(150, sequence=5)
    (log_dir / "t-0" / f"{100:020d}.log").write_bytes(plain(101) + batch + plain(199))
    assert verdict_at(log_dir, 200) is Result.PERMISSIBLE
    # Its marker would be there.
    put_snapshot(log_dir / "t-0", 200, ProducerEntry(PRODUCER, 0, 5, 150, 0, NOW_MS - 1000, 2))
    assert verdict_at(log_dir, 200) is Result.WRONG


def test_without_a_sign_of_cleaning_it_is_wrong(log_dir: Path) -> None:
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n0\n")
    records = [Record(offset, NOW_MS - 1000, b"k", b"v") for offset in range(100, 200)]
    (log_dir / "t-0" / f"{100:020d}.log").write_bytes(build_batch(records))
    assert verdict_at(log_dir, 200) is Result.WRONG


def test_compact_goes_on_above_it_and_writes_no_snapshot_with_it(log_dir: Path, tmp_path: Path) -> None:
    found = compacted(log_dir / "t-0", tmp_path / "out", CompactionRules(NOW_MS))
    assert [(output.base_offset, output.end_offset) for output in found.outputs] == [(100, 300)]
    assert found.survey.remarks == ()
    assert open_in(tmp_path / "out" / f"{300:020d}.snapshot") == [None]


def test_compact_leaves_it_out_of_the_brokers_snapshots(log_dir: Path, tmp_path: Path) -> None:
    """They were written before it ended; its marker was above them."""
    directory = log_dir / "t-0"
    (directory / f"{300:020d}.log").write_bytes(plain(301) + plain(399))
    (directory / f"{400:020d}.log").write_bytes(plain(400))
    for offset, entry in {200: AT_START, 300: AT_START, 400: ENDED}.items():
        put_snapshot(directory, offset, entry)
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 400\n")
    found = compacted(directory, tmp_path / "out", CompactionRules(NOW_MS, segment_bytes=100))
    assert found.survey.remarks == ()
    assert [open_in(tmp_path / "out" / f"{offset:020d}.snapshot") for offset in (200, 300, 400)] == [[None]] * 3


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_compact_leaves_it_out_at_the_end_of_a_segment_of_which_the_cleaner_took_nothing(
    log_dir: Path, tmp_path: Path, has_snapshot: bool
) -> None:
    """Its marker was in the next segment."""
    directory = log_dir / "t-0"
    (directory / f"{100:020d}.log").write_bytes(b"".join(map(plain, range(100, 200))))
    (directory / f"{200:020d}.log").write_bytes(plain(201) + plain(299))
    (directory / f"{200:020d}.snapshot").unlink()
    if has_snapshot:
        put_snapshot(directory, 200, AT_START)
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 300\n")
    found = compacted(directory, tmp_path / "out", CompactionRules(NOW_MS, segment_bytes=100))
    assert found.survey.remarks == ()
    assert [open_in(tmp_path / "out" / f"{offset:020d}.snapshot") for offset in (200, 300)] == [[None]] * 2


def test_compact_accepts_a_snapshot_with_it_where_the_cleaner_took_nothing(log_dir: Path, tmp_path: Path) -> None:
    directory = log_dir / "t-0"
    records = [Record(offset, NOW_MS - 1000, b"k", b"v") for offset in range(100, 299)]
    marker = build_marker(
        299, commit=True, producer_id=PRODUCER, producer_epoch=0, coordinator_epoch=2, timestamp_ms=NOW_MS - 4000
    )
    (directory / f"{100:020d}.log").write_bytes(build_batch(records[:100]))
    (directory / f"{200:020d}.log").write_bytes(build_batch(records[100:]) + marker)
    put_snapshot(directory, 200, AT_START)
    put_snapshot(directory, 300, ENDED)
    assert compacted(directory, tmp_path / "out", CompactionRules(NOW_MS)).survey.remarks == ()


@pytest.mark.parametrize("replay", Replay)
@pytest.mark.parametrize("missing", [200, 300])
def test_heal_writes_no_snapshot_with_it(missing: int, replay: Replay, log_dir: Path) -> None:
    path = log_dir / "t-0" / f"{missing:020d}.snapshot"
    put_snapshot(log_dir / "t-0", 500 - missing, ENDED)
    path.unlink(missing_ok=True)
    report = healed(log_dir, replay=replay)
    assert (report.exit_code, report.healings[0].created, open_in(path)) == (0, [missing], [None])


@pytest.mark.parametrize("replay", Replay)
def test_check_accepts_what_heal_writes_where_retention_took_its_batches(replay: Replay, log_dir: Path) -> None:
    """Its marker is left in the log, which shows no cleaning."""
    marker = build_marker(
        200, commit=False, producer_id=PRODUCER, producer_epoch=0, coordinator_epoch=2, timestamp_ms=NOW_MS - 4000
    )
    (log_dir / "t-0" / f"{100:020d}.log").write_bytes(b"".join(map(plain, range(100, 200))))
    (log_dir / "t-0" / f"{200:020d}.log").write_bytes(marker + b"".join(map(plain, range(201, 300))))
    (log_dir / "t-0" / f"{200:020d}.snapshot").unlink()
    assert healed(log_dir, replay=replay).healings[0].created == [200, 300]
    assert verdict_at(log_dir, 200) is Result.EQUAL


@pytest.mark.parametrize("replay", Replay)
def test_heal_writes_it_where_no_cleaner_has_been(replay: Replay, log_dir: Path) -> None:
    """Its marker comes above."""
    directory = log_dir / "t-0"
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n0\n")
    records = [Record(offset, NOW_MS - 1000, b"k", b"v") for offset in range(100, 299)]
    marker = build_marker(
        299, commit=True, producer_id=PRODUCER, producer_epoch=0, coordinator_epoch=2, timestamp_ms=NOW_MS - 4000
    )
    (directory / f"{100:020d}.log").write_bytes(build_batch(records[:100]))
    (directory / f"{200:020d}.log").write_bytes(build_batch(records[100:]) + marker)
    (directory / f"{200:020d}.snapshot").unlink()
    put_snapshot(directory, 300, ENDED)
    report = healed(log_dir, replay=replay)
    assert (report.exit_code, open_in(directory / f"{200:020d}.snapshot")) == (0, [BEGUN])


@pytest.mark.parametrize("seed", range(40))
def test_no_broker_waits_for_a_transaction_that_has_ended(seed: int, tmp_path: Path) -> None:
    """Random logs that retention and a cleaner have been at; some of the right snapshots are there."""
    random = Random(seed)
    log = random_log(random, random.randint(12, 40))
    bases = sorted({0, *random.sample(range(1, log.end_offset), 5)})
    ends = [*bases[1:], log.end_offset]
    whole = [
        ReferenceSegment(base, end, b"".join(batches))
        for base, end, batches in zip(bases, ends, log.segments(bases), strict=True)
    ]
    at_end, completed = replayed([segment.log for segment in whole])
    rolled = whole[random.randint(0, len(whole) - 2) : -1]
    aborted = [ended for ended in completed if ended.aborted]
    segments = [*cleaned(random, rolled, at_end, aborted), whole[-1]]
    directory = tmp_path / "logs" / "t-0"
    directory.mkdir(parents=True)
    (directory.parent / ".lock").touch()
    (directory.parent / ".kafka_cleanshutdown").touch()
    note, out = f"0\n1\nt 0 {bases[-1]}\n", tmp_path / "out" / "t-0"
    (directory.parent / "cleaner-offset-checkpoint").write_text(note)
    for segment in segments:
        path = directory / f"{segment.base_offset:020d}.log"
        path.write_bytes(segment.log)
        if segment.base_offset and random.random() < 0.6:
            table, _ = replayed([found.log for found in whole if found.base_offset < segment.base_offset])
            path.with_suffix(".snapshot").write_bytes(table.to_snapshot())
    assert not misleading_in(directory)
    found = compacted(directory, out, CompactionRules(SEGMENTS_MS, segment_bytes=random.choice((200, 1 << 20))))
    assert (found.survey.remarks, found.survey.last_stable_offset) == ((), log.end_offset)
    (out.parent / "cleaner-offset-checkpoint").write_text(note)
    assert not misleading_in(out)
    for replay in Replay:
        (healing,) = healed(directory.parent, replay=replay, now_ms=SEGMENTS_MS).healings
        assert healing.mismatches == []
        for offset in healing.created:
            path = directory / f"{offset:020d}.snapshot"
            table = made = ProducerTable.from_snapshot(offset, path.read_bytes())
            path.unlink()
            for segment in segments:
                for columns in scan_bytes(segment.log if segment.base_offset >= offset else b""):
                    table, _ = replay_batches(table, columns.facts())
            assert table.open_transactions() == {}
            right, _ = replayed([found.log for found in whole if found.base_offset < offset])
            for producer_id in right.open_transactions().keys() - made.open_transactions().keys():
                assert not has_batch(segments, producer_id, right.open_transactions()[producer_id], offset)


def misleading_in(directory: Path) -> list[CheckedSnapshot]:
    targets = find_targets([directory], TopicFilter())
    (partition,) = check(targets, LocalEngine(1), Forgetting(SEGMENTS_MS, DAY_MS)).partitions
    return [found for found in partition.snapshots if found.result in MISLEADING]


def has_batch(segments: Sequence[ReferenceSegment], producer_id: int, from_offset: int, to_offset: int) -> bool:
    batches = (batch for segment in segments for batch in decode_segment(segment.log))
    data_batches = (batch for batch in batches if batch.producer_id == producer_id and not batch.is_control)
    return any(from_offset <= batch.base_offset < to_offset for batch in data_batches)


def test_a_new_archive_takes_the_brokers_word_for_it(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    roll(log_dir, {100: (data(101, b"a"), data(199, b"b")), 200: (data(200, b"c"),), 201: ()}, 201)
    put_snapshot(log_dir / "orders-0", 100, AT_START)
    put_snapshot(log_dir / "orders-0", 200, ENDED)
    with tools_for(log_dir, store, tmp_path / "state") as context:
        facts = FileBrokerFacts([log_dir], assume_leader=True)
        report = archive(replace(context, facts=Answering(facts, cluster_start_offset=100)), log_dir, "orders")
    assert report.errors == []
    assert {key for outcome in report.outcomes for key in outcome.conformance} == {"permissible", "absent"}
    state = archived_states(store)["orders-0"]
    tables = [table_at_end(store, state.lineage.root, segment) for segment in state.segments]
    assert [(table.end_offset, len(table.in_transaction())) for table in tables] == [(200, 0), (201, 0)]


def test_rebuild_writes_no_snapshot_with_it(log_dir: Path, tmp_path: Path) -> None:
    (log_dir / "t-0" / f"{200:020d}.snapshot").unlink()
    targets = find_targets([log_dir / "t-0"], TopicFilter())
    report = rebuild(targets, tmp_path / "out", LocalEngine(1), Forgetting(NOW_MS, DAY_MS))
    assert [found.open_transactions for found in report.partitions[0].snapshots] == [0, 0]
    assert open_in(tmp_path / "out" / f"{200:020d}.snapshot") == [None]


def test_heal_writes_it_where_its_batch_is_in_the_active_segment(tmp_path: Path) -> None:
    directory = tmp_path / "logs" / "t-0"
    directory.mkdir(parents=True)
    begun = in_transaction(0, sequence=0)
    (directory / f"{0:020d}.log").write_bytes(begun)
    (directory.parent / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 1\n")
    (directory.parent / ".lock").touch()
    (directory.parent / ".kafka_cleanshutdown").touch()
    healed(directory.parent)
    assert open_in(directory / f"{1:020d}.snapshot") == [0]


def killed_at(last: int, log_dir: Path) -> bool:
    """Heal in a child that kills itself right before so many system calls; whether it came to that."""
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in {0, -signal.SIGKILL}
        return code != 0
    calls = count(1)

    def mortal(function: Callable[..., None]) -> Callable[..., None]:
        def wrapper(*arguments: Any) -> None:
            if next(calls) == last:
                os.kill(os.getpid(), signal.SIGKILL)
            function(*arguments)

        return wrapper

    try:
        os.fsync, os.link, os.unlink = mortal(os.fsync), mortal(os.link), mortal(os.unlink)
        os._exit(healed(log_dir).exit_code)
    finally:
        os._exit(99)


def test_heal_writes_no_snapshot_with_it_after_kill_9_either(log_dir: Path, tmp_path: Path) -> None:
    (log_dir / "t-0" / f"{200:020d}.snapshot").unlink()
    whole = Path(shutil.copytree(log_dir, tmp_path / "whole"))
    assert healed(whole).exit_code == 0
    expected = tree(whole)
    for calls in count(1):
        killed = Path(shutil.copytree(log_dir, tmp_path / str(calls)))
        is_killed = killed_at(calls, killed)
        left = {name: content for name, content in tree(killed).items() if not name.endswith(TEMPORARY_SUFFIX)}
        assert left.items() <= expected.items(), "each file is whole, or not there"
        (healing,) = healed(killed).healings
        assert (healing.problem, healing.mismatches, tree(killed)) == ("", [], expected)
        assert [open_in(killed / "t-0" / f"{offset:020d}.snapshot") for offset in (200, 300)] == [[None]] * 2
        if not is_killed:
            break
    assert calls > 5, "two files, each synchronised and linked, and their directory"


def test_heal_writes_an_open_transaction_from_its_first_batch_in_the_log_on(log_dir: Path) -> None:
    """Retention took what it wrote before, and the broker has raised the cleaner's note to the log start."""
    directory = log_dir / "t-0"
    (log_dir / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 100\n")
    batch = in_transaction(250, sequence=5)
    (directory / f"{200:020d}.log").write_bytes(batch + plain(299))
    (directory / f"{200:020d}.snapshot").unlink()
    assert healed(log_dir).exit_code == 0
    assert [open_in(directory / f"{offset:020d}.snapshot") for offset in (200, 300)] == [[None], [BEGUN]]
