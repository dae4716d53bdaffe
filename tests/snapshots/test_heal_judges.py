"""`heal` judges every snapshot that is there: what it believes, what it replaces, and what it says again on the next run."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from producer_state.replay import replay
from producer_state.snapshot import ProducerEntry, read_snapshot
from producer_state.table import ProducerTable
from sidecar.errors import PartitionError
from sidecar.host import placing
from sidecar.logformat.batches import scan_bytes
from sidecar.snapshots import heal as healer
from tests.cli.running import in_this_process
from tests.snapshot_files import write_snapshot
from tests.snapshots.log_dirs import DAY_MS, NOW_MS, data, healed, log_dir_of, snapshots_in, tree

EMPTY = write_snapshot([])
WRONG = write_snapshot([ProducerEntry(1, 0, 99, 5, 1, NOW_MS)])


def put(log_dir: Path, offset: int, content: bytes) -> Path:
    path = log_dir / "t-0" / f"{offset:020d}.snapshot"
    path.write_bytes(content)
    return path


def state_after(batches: int) -> bytes:
    """What replay gives after so many segments of `log_dir_of`."""
    table = ProducerTable.blank()
    for index in range(batches):
        for columns in scan_bytes(data(2 * index, sequence=2 * index, count=2), base_offset=0):
            table, _ = replay(table, columns.facts())
    return table.to_snapshot()


def test_nothing_is_written_below_a_broker_snapshot_that_contradicts_the_replay(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=6)
    put(log_dir, 6, WRONG)
    before = tree(log_dir)
    for already_there, created in (((), [8, 10]), ((8, 10), [])):
        assert snapshots_in(log_dir / "t-0") == [6, *already_there]
        report = healed(log_dir)
        (healing,) = report.healings
        assert (report.exit_code, healing.created, healing.withheld) == (4, created, [2, 4])
        (mismatch,) = healing.mismatches
        assert mismatch.startswith("6: producer 1: last_sequence 99, according to the log 5")
        assert mismatch.endswith("not written below it: 2 4")
    assert {name: tree(log_dir)[name] for name in before} == before


def test_the_next_witness_decides(tmp_path: Path) -> None:
    """2 lies below one that agrees, 6 below one that does not, 10 below none."""
    log_dir = log_dir_of(tmp_path, segments=6)
    put(log_dir, 4, state_after(2))
    put(log_dir, 8, WRONG)
    (healing,) = healed(log_dir).healings
    assert (sorted(healing.created), healing.withheld, healing.verified) == ([2, 10], [6], [4])


def test_a_wrong_snapshot_is_reported_where_nothing_is_missing(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=4)
    assert healed(log_dir).exit_code == 0
    put(log_dir, 6, WRONG)
    report = healed(log_dir)
    assert (report.exit_code, len(report.worth_showing)) == (4, 1)


def test_a_wrong_snapshot_at_the_end_of_the_log_and_one_inside_a_batch(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=3)
    put(log_dir, 6, WRONG)
    assert healed(log_dir).exit_code == 4
    (log_dir / "t-0" / f"{6:020d}.snapshot").rename(log_dir / "t-0" / f"{5:020d}.snapshot")
    report = healed(log_dir)
    assert report.exit_code == 4
    assert "5: no batch ends there: it is inside the batch [4, 5]" in report.healings[0].mismatches


def test_many_held_snapshots_wait_on_disk_and_are_written_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(healer, "IN_MEMORY_BYTES", 100)
    monkeypatch.setattr(healer, "GROUP_BYTES", 100)
    log_dir = log_dir_of(tmp_path, segments=12)
    put(log_dir, 22, state_after(11))
    assert sorted(healed(log_dir).healings[0].created) == list(range(2, 22, 2))
    for batches in range(1, 11):
        assert (log_dir / "t-0" / f"{2 * batches:020d}.snapshot").read_bytes() == state_after(batches)


def test_empty_artefacts_are_named_and_with_replace_empty_replaced(tmp_path: Path) -> None:
    """What a broker leaves that starts on a directory without snapshots: empty ones at the last two bases and the log end."""
    log_dir = log_dir_of(tmp_path, segments=4)
    directory = log_dir / "t-0"
    for offset in (4, 6, 8):
        (directory / f"{offset:020d}.snapshot").write_bytes(EMPTY)
    (healing,) = healed(log_dir).healings
    assert (healing.created, healing.wrong_empty, healing.mismatches) == ([2], [4, 6, 8], [])
    assert (directory / f"{4:020d}.snapshot").read_bytes() == EMPTY
    (healing,) = healed(log_dir, replace_empty=True, dry_run=True).healings
    assert (healing.replaced, healing.wrong_empty) == ([], [4, 6, 8])
    (healing,) = healed(log_dir, replace_empty=True).healings
    assert (healing.created, healing.replaced, healing.wrong_empty) == ([], [4, 6, 8], [])
    for offset in (4, 6, 8):
        assert len(read_snapshot((directory / f"{offset:020d}.snapshot").read_bytes())) == 1
        assert (directory / f"{offset:020d}.snapshot.empty").read_bytes() == EMPTY
    assert healed(log_dir, replace_empty=True).worth_showing == []


def test_an_empty_snapshot_stays_where_every_producer_is_expired(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=3)
    for offset in (2, 4):
        (log_dir / "t-0" / f"{offset:020d}.snapshot").write_bytes(EMPTY)
    (healing,) = healed(log_dir, replace_empty=True, now_ms=NOW_MS + 2 * DAY_MS).healings
    assert (healing.replaced, healing.wrong_empty, healing.problem) == ([], [], "")
    assert snapshots_in(log_dir / "t-0") == [2, 4]


def test_wrong_empty_snapshots_are_reported_on_every_run(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=4)
    for offset in (2, 4, 6, 8):
        put(log_dir, offset, EMPTY)
    for _ in range(2):
        report = healed(log_dir)
        assert report.exit_code == 4
        assert [healing.wrong_empty for healing in report.worth_showing] == [[2, 4, 6, 8]]


def test_what_stems_from_an_empty_artefact_is_neither_believed_nor_a_witness(tmp_path: Path) -> None:
    """A broker that had begun from the empty ones knows producer 2 only, and wrote that."""
    log_dir = log_dir_of(tmp_path, segments=0)
    for index in range(7):
        log = log_dir / "t-0" / f"{2 * index:020d}.log"
        log.write_bytes(data(2 * index, producer_id=1 if index < 3 else 2, count=2))
    for offset, content in ((4, EMPTY), (6, EMPTY), (8, None), (10, None)):
        put(log_dir, offset, content or write_snapshot([ProducerEntry(2, 0, 1, offset - 1, 1, NOW_MS)]))
    report = healed(log_dir, replace_empty=True)
    (healing,) = report.healings
    assert (report.exit_code, healing.created, healing.replaced, healing.withheld) == (4, [2, 12], [4, 6], [])
    assert all("started from the empty snapshot 6" in mismatch for mismatch in healing.mismatches)
    entries = read_snapshot((log_dir / "t-0" / f"{12:020d}.snapshot").read_bytes())
    assert [entry.producer_id for entry in entries] == [1, 2]
    assert healed(log_dir, replace_empty=True).exit_code == 4


def test_nothing_is_built_on_a_snapshot_above_the_start(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=5)
    for offset in (2, 4, 6):
        put(log_dir, offset, write_snapshot([ProducerEntry(7, 0, 1, offset - 1, 1, NOW_MS)]))
    (healing,) = healed(log_dir).healings
    (entry,) = read_snapshot((log_dir / "t-0" / f"{8:020d}.snapshot").read_bytes())
    assert (entry.producer_id, entry.last_offset, len(healing.mismatches)) == (1, 7, 3)


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 10, state_after(2)[:-1] + b"\1"], ids=["0 bytes", "zeros", "checksum"]
)
def test_a_file_that_is_no_snapshot_is_reported_and_replaced_if_asked(tmp_path: Path, content: bytes) -> None:
    log_dir = log_dir_of(tmp_path, segments=4)
    healed(log_dir)
    path = put(log_dir, 4, content)
    for _ in range(2):
        report = healed(log_dir)
        assert (report.exit_code, report.healings[0].corrupt, path.read_bytes()) == (4, [4], content)
    assert healed(log_dir, dry_run=True).exit_code == 4
    report = healed(log_dir, replace_corrupt=True)
    assert (report.exit_code, report.healings[0].replaced) == (0, [4])
    assert path.read_bytes() == state_after(2)
    assert path.with_name(f"{path.name}.corrupt").read_bytes() == content
    assert healed(log_dir).worth_showing == []


def test_a_second_corrupt_file_does_not_take_the_place_of_the_first(tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, segments=4)
    for content in (b"first", b"second"):
        path = put(log_dir, 4, content)
        assert healed(log_dir, replace_corrupt=True).exit_code == 0
    kept = sorted(path.parent.glob("*.corrupt*"))
    assert [each.read_bytes() for each in kept] == [b"first", b"second"]


@pytest.mark.parametrize("offset", [3, 2], ids=["inside a batch", "between two"])
def test_a_stray_inside_a_segment_is_left_and_stops_nothing(tmp_path: Path, offset: int) -> None:
    """A broker that starts deletes it unread."""
    log_dir = log_dir_of(tmp_path, segments=0)
    batches = [data(index, sequence=index, count=2) for index in range(0, 10, 2)]
    for base, content in ((0, batches[0] + batches[1]), (4, batches[2]), (6, batches[3]), (8, batches[4])):
        (log_dir / "t-0" / f"{base:020d}.log").write_bytes(content)
    path = put(log_dir, offset, EMPTY)
    report = healed(log_dir, replace_empty=True)
    (healing,) = report.healings
    assert (report.exit_code, healing.created, healing.replaced, healing.problem) == (0, [4, 6, 8], [], "")
    assert path.read_bytes() == EMPTY


@pytest.mark.parametrize("at_start", [None, EMPTY, b"corrupt", state_after(2)])
def test_an_unknown_beginning_is_reported(tmp_path: Path, at_start: bytes | None) -> None:
    log_dir = log_dir_of(tmp_path, segments=5)
    for base in (0, 2):
        (log_dir / "t-0" / f"{base:020d}.log").unlink()
    if at_start is not None:
        put(log_dir, 4, at_start)
    report = healed(log_dir)
    (healing,) = report.healings
    known = at_start == state_after(2)
    assert (report.exit_code, healing.created, healing.exact) == (0, [6, 8], known)
    assert bool(healing.note) is not known
    assert report.as_json()["partitions"][0]["note"] == healing.note
    assert known or "no snapshot with producers at the log's start 4" in healing.note


def test_a_time_that_has_not_come_yet_is_refused(tmp_path: Path) -> None:
    """Every producer would count as expired, and be left out."""
    log_dir = log_dir_of(tmp_path)
    result = in_this_process("snapshots", "heal", log_dir, "--now-ms", str(2**52))
    assert (result.code, snapshots_in(log_dir / "t-0")) == (2, [])
    assert "later than this machine's clock" in result.err


def test_names_are_made_durable_also_when_a_later_file_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log_dir = log_dir_of(tmp_path)
    synced: list[Path] = []

    def fails_at_4(path: Path, *arguments: object, **options: object) -> None:
        if path.name.startswith(f"{4:020d}"):
            raise PartitionError("no more")
        placing.place_snapshot(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(healer, "place_snapshot", fails_at_4)
    monkeypatch.setattr(healer, "sync_directory", synced.append)
    (healing,) = healed(log_dir).healings
    assert (healing.created, healing.problem, synced) == ([2], "no more", [log_dir / "t-0"])


def test_without_hard_links_the_old_file_is_copied_with_owner_and_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    log_dir = log_dir_of(tmp_path)
    old = put(log_dir, 4, EMPTY)
    old.chmod(0o604)
    if os.geteuid() == 0:
        os.chown(old, 1001, 1002)
    before = old.stat()
    synced: list[int] = []
    real = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(os, "fsync", noted)
    assert healed(log_dir, replace_empty=True).healings[0].replaced == [4]
    aside = old.with_name(f"{old.name}.empty")
    after = aside.stat()
    assert aside.read_bytes() == EMPTY
    assert (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)) == (before.st_uid, before.st_gid, 0o604)
    assert after.st_ino in synced
