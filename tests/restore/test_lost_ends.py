"""Where the end of what is restored is recorded as lost, the log ends behind it: none of these offsets may be given out again."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer_state.snapshot import ProducerEntry
from producer_state.table import ProducerTable
from sidecar.archive.actions import Lost
from sidecar.archive.commit import Writer
from sidecar.cli.restore.report import show
from sidecar.commits.commit_log import CommitLog
from sidecar.logformat.bodies.records import read_records
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.leader_epochs import read_leader_epochs
from sidecar.logformat.names import (
    HIGH_WATERMARK_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from sidecar.model import TopicPartition
from sidecar.restore.outcome import PartitionOutcome
from sidecar.restore.request import OpenTransactionMode, RestoreRequest
from sidecar.restore.restore import RestoreReport, Run, plan_restore, restore
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden
from tests.restore.archives import CLOCK, archived, batches_of, golden_topic_id, lose, own_log_dir, restored
from tests.restore.test_damage import segment_keys
from tests.restore.test_ranges import END, assert_loadable
from tests.runner.rig import archive, archived_states, tools_for

LOST_FROM = 868
"""Base of the last archived segment of orders-0."""


def lost_at_the_end() -> MemoryStore:
    store = archived()
    assert lose(store, "orders-0", LOST_FROM).end_offset == END
    return store


def assert_ends(log_dir: Path, outcome: PartitionOutcome, end_offset: int, lost: list[tuple[int, int]]) -> None:
    """The log ends there, whoever tells, one offset further where a batch leads over; and these holes are named."""
    assert outcome.log is not None
    end_offset += not outcome.log.aborted and outcome.log.start_offset < end_offset
    reported = outcome.to_json()
    assert (outcome.log.end_offset, reported["end_offset"]) == (end_offset, end_offset)
    assert [(hole[0], hole[1]) for hole in reported["lost"]] == lost  # type: ignore[attr-defined]
    partition = outcome.plan.topic_partition
    for name in (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT):
        assert read_offset_checkpoint((log_dir / name).read_bytes())[partition] == end_offset
    assert_loadable(log_dir / str(partition), end_offset)


def entries_at(directory: Path, offset: int) -> tuple[ProducerEntry, ...]:
    return ProducerTable.from_snapshot(offset, (directory / f"{offset:020d}.snapshot").read_bytes()).entries()


def test_a_log_ends_behind_what_is_lost_at_the_archives_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, log_dir = lost_at_the_end(), own_log_dir(tmp_path)
    wish = RestoreRequest("orders", log_dir, partitions=(0,), topic_id=golden_topic_id("orders"))
    planned = plan_restore(store, CLOCK, wish).outcomes[0].to_json()
    assert (planned["end_offset"], len(planned["lost"])) == (END, 1)  # type: ignore[arg-type]
    outcome = restored(store, log_dir, "orders")
    assert_ends(log_dir, outcome, END, [(LOST_FROM, END)])
    directory = log_dir / "orders-0"
    source = batches_of(golden("4.3.0") / "logs" / "orders-0")
    *found, last = batches_of(directory)
    assert [batch.content for batch in found] == [batch.content for batch in source if batch.first_offset < LOST_FROM]
    # Readers that are given this one, which has no record, are at the end.
    assert (last.segment_base_offset, last.last_offset, last.leader_epoch) == (END, END, 4)
    assert list(read_records(last.content)) == []
    assert entries_at(directory, END) == entries_at(directory, LOST_FROM) != ()
    epochs = read_leader_epochs((directory / LEADER_EPOCH_CHECKPOINT).read_bytes())
    assert [(entry.epoch, entry.start_offset) for entry in epochs.entries] == [(0, 0), (2, 350), (4, 700)]
    show(RestoreReport(log_dir, 0, [outcome]), colors=False, dry_run=False)
    reported = " ".join(capsys.readouterr().err.split())
    assert f"orders-0: not in the archive, recorded as lost: [{LOST_FROM}, {END}): damaged" in reported
    assert f"orders-0: its log continues at {END}, after the lost offsets" in reported
    assert f"orders-0: its last batch ends below {END}: an empty batch" in reported


@pytest.mark.parametrize(
    ("wanted", "start_offset", "data_end_offset"),
    [((314, 900), 314, LOST_FROM), ((870, 900), 900, 900), ((870, 2**63 - 1), END, END)],
    ids=["ends in it", "lies in it", "from in it on"],
)
def test_a_range_ends_where_it_was_asked_to_though_all_is_lost_there(
    wanted: tuple[int, int], start_offset: int, data_end_offset: int, tmp_path: Path
) -> None:
    log_dir, end_offset = own_log_dir(tmp_path), min(wanted[1], END)
    outcome = restored(lost_at_the_end(), log_dir, "orders", offset_range=wanted)
    assert_ends(log_dir, outcome, end_offset, [(LOST_FROM, END)])
    assert outcome.log is not None
    assert outcome.log.start_offset == start_offset
    directory = log_dir / "orders-0"
    kept = [batch.first_offset for batch in batches_of(golden("4.3.0") / "logs" / "orders-0")]
    kept = [offset for offset in kept if start_offset <= offset < data_end_offset]
    led_over = [end_offset] if kept else []
    assert [batch.first_offset for batch in batches_of(directory)] == [*kept, *led_over]
    epochs = read_leader_epochs((directory / LEADER_EPOCH_CHECKPOINT).read_bytes())
    assert epochs.covers(start_offset)
    assert epochs.latest_epoch == 4
    if start_offset == end_offset:  # Nothing below is left over, which a broker would have to clear away.
        assert {path.name.split(".")[0] for path in directory.glob("0*")} == {f"{end_offset:020d}"}
        assert entries_at(directory, end_offset)
        starts = log_dir / LOG_START_CHECKPOINT
        assert not starts.exists() or TopicPartition("orders", 0) not in read_offset_checkpoint(starts.read_bytes())


def test_a_sidecar_goes_on_with_the_archive_behind_it(tmp_path: Path) -> None:
    store, log_dir = lost_at_the_end(), own_log_dir(tmp_path)
    restored(store, log_dir, "orders")
    before = archived_states(store)["orders-0"]
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir).errors == []
    assert archived_states(store)["orders-0"] == before


def test_markers_that_end_transactions_are_written_behind_what_is_lost(tmp_path: Path) -> None:
    store, log_dir = archived(), own_log_dir(tmp_path)
    for base_offset in (431, 220):
        end_offset = lose(store, "transactions-0", base_offset).end_offset
    assert end_offset == 603
    outcome = restored(store, log_dir, "transactions", open_transactions=OpenTransactionMode.ABORT)
    assert outcome.log is not None
    assert outcome.log.open_transactions == (77,)
    assert_ends(log_dir, outcome, end_offset + 1, [(220, 431), (431, end_offset)])
    last = batches_of(log_dir / "transactions-0")[-1]
    assert (last.first_offset, last.is_control) == (end_offset, True)


@pytest.mark.parametrize("wanted", [None, (870, 900)])
def test_a_run_that_was_interrupted_fetches_nothing_again(
    wanted: tuple[int, int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir = own_log_dir(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Run, "swap_in", lambda run: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            restored(lost_at_the_end(), log_dir, "orders", offset_range=wanted)
    store = lost_at_the_end()
    outcome = restored(store, log_dir, "orders", offset_range=wanted)
    assert store.calls["stream"] == 0
    assert_ends(log_dir, outcome, END if wanted is None else wanted[1], [(LOST_FROM, END)])


def test_what_an_earlier_run_finished_ends_where_it_ended_then(tmp_path: Path) -> None:
    """What was lost since is not in it, and is not said to be."""
    store, request = (
        lost_at_the_end(),
        RestoreRequest("orders", own_log_dir(tmp_path), topic_id=golden_topic_id("orders")),
    )
    damaged = segment_keys(store, "/orders/1/")[0]
    kept = store.objects.pop(damaged)
    assert [outcome.state for outcome in restore(store, CLOCK, request).outcomes] == ["restored", "stopped"]
    store.objects[damaged] = kept
    state = archived_states(store)["orders-0"]
    log = CommitLog(store, state.lineage.root, CLOCK)
    log.append([Lost(END, END + 50, "later")], Writer(1, state.leader_epoch, "test"), log.read())
    reported = restore(store, CLOCK, request).outcomes[0].to_json()
    assert reported["state"] == "done before"
    assert (reported["end_offset"], reported["lost"]) == (END, [[LOST_FROM, END, "damaged"]])
