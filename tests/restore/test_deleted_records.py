"""What was deleted on purpose does not come back by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sidecar.archive.actions import DeleteRecords
from sidecar.archive.commit import Writer
from sidecar.commits.commit_log import CommitLog
from sidecar.logformat.checkpoints import read_offset_checkpoint
from sidecar.logformat.names import LOG_START_CHECKPOINT
from sidecar.model import TopicPartition
from sidecar.restore.request import DeletedRecordsMode
from tests.cli.running import in_this_process
from tests.fakes.memory_store import MemoryStore
from tests.restore.archives import CLOCK, archived, batches_of, golden_topic_id, own_log_dir, restored
from tests.runner.rig import archived_states

ORDERS = TopicPartition("orders", 0)


def deleted_before(offset: int, partition: str = "orders-0") -> MemoryStore:
    store = archived()
    state = archived_states(store)[partition]
    log = CommitLog(store, state.lineage.root, CLOCK)
    writer = Writer(1, state.highest_leader_epoch, "test")
    assert log.append([DeleteRecords(offset)], writer, log.read()).deleted_before_offset == offset
    return store


def log_starts(log_dir: Path) -> dict[TopicPartition, int]:
    path = log_dir / LOG_START_CHECKPOINT
    return read_offset_checkpoint(path.read_bytes(), str(path)) if path.exists() else {}


def test_a_restored_log_begins_above_deleted_records_wherever_that_is(tmp_path: Path) -> None:
    end_offset = archived_states(archived())["orders-0"].end_offset or 0
    for number, offset in enumerate([1, 300, 333, end_offset - 1]):
        (tmp_path / str(number)).mkdir()
        log_dir = own_log_dir(tmp_path / str(number))
        outcome = restored(deleted_before(offset), log_dir, "orders")
        assert outcome.plan.deleted_before_offset == offset
        assert outcome.log is not None
        assert (outcome.log.start_offset, outcome.log.end_offset) == (offset, end_offset)
        batches = batches_of(log_dir / "orders-0")
        assert batches[0].first_offset <= offset <= batches[0].last_offset
        first_base = min(int(path.stem) for path in (log_dir / "orders-0").glob("*.log"))
        assert log_starts(log_dir).get(ORDERS, first_base) == offset


def test_a_log_of_which_all_was_deleted_is_empty_and_keeps_its_end(tmp_path: Path) -> None:
    end_offset = archived_states(archived())["orders-0"].end_offset or 0
    log_dir = own_log_dir(tmp_path)
    outcome = restored(deleted_before(end_offset), log_dir, "orders")
    assert outcome.log is not None
    assert (outcome.log.first_base_offset, outcome.log.start_offset, outcome.log.end_offset) == (end_offset,) * 3
    row = outcome.to_json()
    assert (row["segments"], row["segments_resumed"], row["bytes"]) == (0, 0, 0)
    names = {path.name for path in (log_dir / "orders-0").iterdir()}
    expected = {f"{end_offset:020d}.{suffix}" for suffix in ("log", "index", "timeindex", "snapshot")}
    assert names == expected | {"leader-epoch-checkpoint", "partition.metadata"}
    assert (log_dir / "orders-0" / f"{end_offset:020d}.log").stat().st_size == 0


@pytest.mark.parametrize(("deleted", "start_offset", "end_offset"), [(110, 110, 118), (118, 104, 104), (500, 104, 104)])
def test_nor_do_they_behind_a_range_that_ends_below_in_a_batch(
    deleted: int, start_offset: int, end_offset: int, tmp_path: Path
) -> None:
    """The batch [103, 118) begins below the range's end, and would stay whole."""
    log_dir = own_log_dir(tmp_path)
    outcome = restored(deleted_before(deleted), log_dir, "orders", offset_range=(0, 104))
    assert outcome.log is not None
    assert outcome.plan.deleted_before_offset == deleted
    assert (outcome.log.start_offset, outcome.log.end_offset) == (start_offset, end_offset)
    batches = batches_of(log_dir / "orders-0")
    assert [batch.first_offset for batch in batches] == ([103] if end_offset > 104 else [])
    assert len(outcome.segments) == len(batches)
    first_base = min(int(path.stem) for path in (log_dir / "orders-0").glob("*.log"))
    assert log_starts(log_dir).get(ORDERS, first_base) == start_offset


@pytest.mark.parametrize(
    "request_options",
    [{"deleted_records": DeletedRecordsMode.RESTORE}, {"offset_range": (400, 900)}],
    ids=["wanted back", "a range above"],
)
def test_they_do_not_matter_where_they_are_wanted_or_below_the_range(
    request_options: dict[str, Any], tmp_path: Path
) -> None:
    outcome = restored(deleted_before(333), own_log_dir(tmp_path), "orders", **request_options)
    assert outcome.plan.deleted_before_offset == 0
    assert outcome.log is not None
    assert outcome.log.start_offset == request_options.get("offset_range", (0, 0))[0]


def test_the_command_says_what_it_leaves_out_and_how_to_get_it(tmp_path: Path) -> None:
    for key, body in deleted_before(333).objects.items():
        path = tmp_path / "archive" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    arguments = [
        "restore",
        "--archive",
        str(tmp_path / "archive"),
        "--topic",
        "orders",
        "--to",
        str(own_log_dir(tmp_path)),
    ]
    arguments += ["--topic-id", str(golden_topic_id("orders")), "--dry-run"]
    reported = in_this_process(*arguments)
    assert reported.code == 0, reported.err
    assert "records below offset 333 were deleted on purpose" in " ".join((reported.out + reported.err).split())
    (row, _) = in_this_process(*arguments, "--json").lines()[0]["partitions"]
    assert (row["start_offset"], row["deleted_before_offset"]) == (333, 333)
    below = ("--partition", "0", "--offset-range", "10:50", "--json")
    (row,) = in_this_process(*arguments, *below).lines()[0]["partitions"]
    assert (row["start_offset"], row["end_offset"], row["segments"], row["bytes"]) == (50, 50, 0, 0)
    (row, _) = in_this_process(*arguments, "--deleted-records", "restore", "--json").lines()[0]["partitions"]
    assert (row["start_offset"], row["deleted_before_offset"]) == (0, None)
    for command in ("status", "verify"):
        named = (command, "--archive", str(tmp_path / "archive"), "--topic", "orders")
        said = " ".join(in_this_process(*named).err.split())
        assert "orders-0: records below offset 333 were deleted on purpose" in said
        assert "orders-1: records" not in said
        found = in_this_process(*named, "--json").lines()
        assert [row["deleted_before_offset"] for row in found if row.get("partition") == 0] == [333]
