"""Ranges are cut between batches, which stay whole, and everything beside them fits the cut."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from producer_state.replay import replay
from producer_state.snapshot import read_snapshot
from producer_state.table import ProducerTable
from sidecar.cli.restore.report import show
from sidecar.errors import SettingsError
from sidecar.logformat.batches import scan_bytes, scan_file
from sidecar.logformat.bodies.building import build_batch, build_marker
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.bodies.records import read_records
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.indexes import offset_index, time_index, transaction_index
from sidecar.logformat.indexes.rebuild import IndexBuilder
from sidecar.logformat.indexes.verdict import FINE
from sidecar.logformat.leader_epochs import read_leader_epochs
from sidecar.logformat.names import LOG_START_CHECKPOINT
from sidecar.model import TopicPartition
from sidecar.restore.request import OPEN_END
from sidecar.restore.restore import RestoreReport, Run
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden
from tests.restore.archives import archived, batches_of, files_of, lose, other_log_dir, own_log_dir, restored
from tests.runner.rig import archive, archived_states, copy_partitions, tools_for
from tests.segment.made_logs import LEADER_EPOCH, NOW_MS, roll

END = 964
"""Of what is archived of orders-0, whose log goes on."""


def assert_loadable(directory: Path, end_offset: int) -> None:
    """Every index is right for its file; the active segment is empty, or has an empty batch that leads over missing offsets.

    There is a snapshot at each segment's base, but for the log's beginning: a broker's tiering stops where there is none.
    """
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    *below, last = batches_of(directory) or [None]
    if bases[-1] != end_offset:
        assert last is not None
        assert bases[-1] == last.segment_base_offset == last.first_offset == last.last_offset == end_offset - 1
        assert list(read_records(last.content)) == []
        assert below
    else:
        assert (directory / f"{end_offset:020d}.log").stat().st_size == 0
        assert last is None or last.last_offset == end_offset - 1
    assert {int(path.stem) for path in directory.glob("*.snapshot")} >= set(bases[1:])
    for base in bases:
        name = f"{base:020d}"
        offsets = offset_index.OffsetIndexCheck((directory / f"{name}.index").read_bytes(), base)
        times = time_index.TimeIndexCheck((directory / f"{name}.timeindex").read_bytes(), base)
        builder = IndexBuilder(base)
        scanner = scan_file(directory / f"{name}.log", base_offset=base)
        for columns in scanner:
            for fold in (offsets, times, builder):
                fold.add(columns)
        scanner.require_exact()
        rebuilt = builder.finish()
        assert offsets.finish(rebuilt.offset_index) == times.finish(rebuilt.time_index) == FINE, name
    for path in directory.glob("*.txnindex"):
        transaction_index.check_as_broker(path.read_bytes(), int(path.stem))
    assert not list(directory.glob("*.note")) + list(directory.glob("*.part"))


@pytest.mark.parametrize("topic", ["orders", "transactions", "codecs-java", "compacted"])
def test_every_end_keeps_the_batches_that_begin_below_it(topic: str, tmp_path: Path) -> None:
    store = archived()
    batches = batches_of(golden("4.3.0") / "logs" / f"{topic}-0")
    whole = restored(store, own_log_dir(tmp_path), topic)
    assert whole.log is not None
    ends = [1, *range(3, whole.log.end_offset, whole.log.end_offset // 6), whole.log.end_offset - 1]
    for number, end in enumerate(ends):
        (tmp_path / str(number)).mkdir()
        log_dir = own_log_dir(tmp_path / str(number))
        outcome = restored(store, log_dir, topic, offset_range=(0, end))
        kept = [batch for batch in batches if batch.first_offset < end]
        directory = log_dir / f"{topic}-0"
        assert [batch.content for batch in batches_of(directory)] == [batch.content for batch in kept]
        assert outcome.log is not None
        assert outcome.log.end_offset == max(end, kept[-1].last_offset + 1)
        assert_loadable(directory, outcome.log.end_offset)
        table = ProducerTable.blank()
        for path in sorted(directory.glob("*.log")):
            for columns in scan_file(path):
                table, _ = replay(table, columns.facts())
        found = read_snapshot((directory / f"{outcome.log.end_offset:020d}.snapshot").read_bytes())
        assert found == table.entries()


def test_an_open_end_asks_for_no_more_than_is_archived(tmp_path: Path) -> None:
    outcome = restored(archived(), own_log_dir(tmp_path), "orders", offset_range=(300, OPEN_END))
    assert outcome.log is not None
    assert not outcome.plan.asks_for_more


@pytest.mark.parametrize("version", ["2.7.2", "4.3.0"])
def test_every_start_is_exact(version: str, tmp_path: Path) -> None:
    store = archived(version)
    topic = "legacy-mixed" if version == "2.7.2" else "codecs-java"
    batches = batches_of(golden(version) / "logs" / f"{topic}-0")
    for number, start in enumerate([0, 1, 5, 141, 300, 399, 400, 700]):
        (tmp_path / str(number)).mkdir()
        log_dir = own_log_dir(tmp_path / str(number), version)
        outcome = restored(store, log_dir, topic, version, offset_range=(start, 10**9))
        assert outcome.log is not None
        assert outcome.plan.asks_for_more
        directory = log_dir / f"{topic}-0"
        end = outcome.log.end_offset
        kept = [batch for batch in batches if batch.last_offset >= start and batch.segment_base_offset < end]
        assert [batch.content for batch in batches_of(directory)] == [batch.content for batch in kept]
        assert outcome.log.start_offset == start
        assert outcome.log.first_base_offset <= start
        checkpoint = log_dir / LOG_START_CHECKPOINT
        entries = read_offset_checkpoint(checkpoint.read_bytes()) if checkpoint.exists() else {}
        needed = outcome.log.first_base_offset < start
        assert entries == ({TopicPartition(topic, 0): start} if needed else {})
        assert_loadable(directory, end)


def test_both_ends_in_one_segment_and_its_epochs(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    outcome = restored(archived(), log_dir, "orders", offset_range=(360, 361))
    assert outcome.log is not None
    kept = [
        batch
        for batch in batches_of(golden("4.3.0") / "logs" / "orders-0")
        if batch.last_offset >= 360 > batch.first_offset - 1
    ]
    assert [batch.content for batch in batches_of(log_dir / "orders-0")] == [batch.content for batch in kept]
    epochs = read_leader_epochs((log_dir / "orders-0" / "leader-epoch-checkpoint").read_bytes())
    assert [(entry.epoch, entry.start_offset) for entry in epochs.entries] == [(2, 360)]


def test_until_a_time_ends_before_the_first_later_batch(tmp_path: Path) -> None:
    store = archived()
    batches = [batch for batch in batches_of(golden("4.3.0") / "logs" / "orders-0") if batch.first_offset < END]
    times = sorted({batch.max_timestamp_ms for batch in batches})
    for number, until in enumerate([times[0], times[len(times) // 2], times[-1] - 1, times[-1]]):
        (tmp_path / str(number)).mkdir()
        log_dir = own_log_dir(tmp_path / str(number))
        outcome = restored(store, log_dir, "orders", until_timestamp_ms=until)
        kept = list(itertools.takewhile(lambda batch: batch.max_timestamp_ms <= until, batches))  # noqa: B023
        assert [batch.content for batch in batches_of(log_dir / "orders-0")] == [batch.content for batch in kept]
        assert outcome.log is not None
        assert outcome.log.end_offset == (END if len(kept) == len(batches) else batches[len(kept)].first_offset)
        assert_loadable(log_dir / "orders-0", outcome.log.end_offset)


def test_a_cut_into_another_cluster_is_flat_too(tmp_path: Path) -> None:
    log_dir = other_log_dir(tmp_path)
    outcome = restored(archived(), log_dir, "orders", offset_range=(360, 800), topic_id="8OyGp8_jQ0iBuez4VPrvCg")
    assert outcome.log is not None
    assert {batch.leader_epoch for batch in batches_of(log_dir / "orders-0")} == {0}
    assert (log_dir / "orders-0" / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 360\n"
    snapshots = {content for name, content in files_of(log_dir / "orders-0").items() if name.endswith(".snapshot")}
    assert snapshots == {bytes.fromhex("000148674bc700000000")}
    assert_loadable(log_dir / "orders-0", outcome.log.end_offset)


def test_what_is_not_archived_cannot_be_asked_for(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    with pytest.raises(SettingsError, match=r"has the offsets 0:964, and none of the requested ones, 964:2000\."):
        restored(archived(), log_dir, "orders", offset_range=(964, 2000))
    with pytest.raises(SettingsError, match=r"requested ones, 90000:\. Correct --offset-range$"):
        restored(archived(), log_dir, "orders", offset_range=(90000, OPEN_END))


def test_offsets_that_are_recorded_as_lost_are_a_gap_that_is_reported(tmp_path: Path) -> None:
    store, log_dir = archived(), own_log_dir(tmp_path)
    state = archived_states(store)["orders-0"]
    gone = state.segments[3]
    lose(store, "orders-0", gone.base_offset)
    outcome = restored(store, log_dir, "orders")
    assert [(hole.base_offset, hole.end_offset) for hole in outcome.plan.lost] == [(gone.base_offset, gone.end_offset)]
    assert outcome.log is not None
    assert outcome.log.end_offset == END
    kept = [
        batch.content
        for batch in batches_of(golden("4.3.0") / "logs" / "orders-0")
        if batch.first_offset < END and batch.segment_base_offset != gone.base_offset
    ]
    assert [batch.content for batch in batches_of(log_dir / "orders-0")] == kept
    assert_loadable(log_dir / "orders-0", END)
    # A range that begins in the gap begins behind it.
    (tmp_path / "later").mkdir()
    later = restored(store, own_log_dir(tmp_path / "later"), "orders", offset_range=(gone.base_offset + 1, END))
    assert later.log is not None
    assert later.log.start_offset == gone.end_offset


def test_a_cut_that_was_interrupted_is_not_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = own_log_dir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "swap_in", lambda run: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            restored(archived(), log_dir, "orders", offset_range=(300, 700))
    store = archived()
    outcome = restored(store, log_dir, "orders", offset_range=(300, 700))
    assert store.calls["stream"] == 0
    assert outcome.log is not None
    assert outcome.log.start_offset == 300
    assert_loadable(log_dir / "orders-0", outcome.log.end_offset)


@pytest.mark.parametrize("topic", ["transactions", "orders"])
def test_producers_at_an_end_know_what_lies_below_a_start_in_the_same_segment(topic: str, tmp_path: Path) -> None:
    """Transactions that were begun, or ended, between the segment's base and the range's start."""
    store = archived()
    batches = batches_of(golden("4.3.0") / "logs" / f"{topic}-0")
    open_at_ends = 0
    for segment in archived_states(store)[f"{topic}-0"].segments:
        for end in (segment.base_offset + 90, segment.base_offset + 130):
            start = end - 25
            if end >= segment.end_offset:
                continue
            target = tmp_path / f"{end}"
            target.mkdir()
            log_dir = own_log_dir(target)
            outcome = restored(store, log_dir, topic, offset_range=(start, end))
            assert len(outcome.plan.segments) == 1
            assert outcome.log is not None
            assert outcome.log.start_offset == start
            table = ProducerTable.blank()
            for batch in batches:
                if batch.first_offset < end:
                    for columns in scan_bytes(batch.content):
                        table, _ = replay(table, columns.facts())
            found = read_snapshot((log_dir / f"{topic}-0" / f"{outcome.log.end_offset:020d}.snapshot").read_bytes())
            assert found == table.entries(), (start, end)
            expected = {entry.current_txn_first_offset for entry in table.entries()} - {None}
            assert set(outcome.log.open_transactions) == expected
            open_at_ends += len(expected)
            assert_loadable(log_dir / f"{topic}-0", outcome.log.end_offset)
    assert (open_at_ends > 0) == (topic == "transactions")


def test_producers_below_the_archive_are_not_known_and_that_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those below a hole are: a retry of what one of them wrote last is no new record."""
    store = archived()
    first, *_, gone, behind = archived_states(store)["orders-0"].segments[:5]
    lose(store, "orders-0", gone.base_offset)
    lose(store, "orders-0", first.base_offset)
    for end, blank_below in ((first.end_offset + 9, first.end_offset), (behind.end_offset - 1, None)):
        (tmp_path / f"{end}").mkdir()
        log_dir = own_log_dir(tmp_path / f"{end}")
        outcome = restored(store, log_dir, "orders", offset_range=(0, end))
        assert outcome.to_json()["producers_blank_below"] == blank_below
        show(RestoreReport(log_dir, 0, [outcome]), colors=False, dry_run=False)
        assert ("is unknown" in capsys.readouterr().err) == (blank_below is not None)


def test_what_began_below_the_first_offset_stays_aborted(tmp_path: Path) -> None:
    """Only the transaction index shows a consumer the abort: the batch with which the transaction began is left out."""
    produced: dict[str, Any] = {"leader_epoch": LEADER_EPOCH, "producer_id": 7, "producer_epoch": 0}
    data = [
        build_batch([Record(offset, NOW_MS - 60_000, b"k", b"v")], base_sequence=offset, transactional=True, **produced)
        for offset in range(2)
    ]
    marker = build_marker(2, commit=False, coordinator_epoch=0, timestamp_ms=NOW_MS - 60_000, **produced)
    source, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    roll(source, {0: (*data, marker), 3: ()}, 3)
    with tools_for(source, store, tmp_path / "state") as context:
        assert archive(context, source, "orders").errors == []
    (tmp_path / "restored").mkdir()
    log_dir = own_log_dir(tmp_path / "restored")
    restored(store, log_dir, "orders", offset_range=(1, 3))
    found = transaction_index.read_transaction_index((log_dir / "orders-0" / f"{1:020d}.txnindex").read_bytes())
    assert (found.first_offset.tolist(), found.last_offset.tolist()) == ([0], [2])
