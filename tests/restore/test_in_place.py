"""An operating system reads and writes less than it was asked now and then, and a file may be cut by somebody else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.errors import PartitionError
from sidecar.host.page_cache import begin_write_out
from sidecar.ports import MIB
from sidecar.restore import staging
from sidecar.restore.segments import keep_only
from sidecar.restore.staging import NewFile, new_file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(range(100)))
    return path


@pytest.fixture
def descriptor(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR)
    yield descriptor
    os.close(descriptor)


def test_all_of_it_however_little_is_done_at_once(path: Path, descriptor: int, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv, pwrite = os.preadv, os.pwrite
    monkeypatch.setattr(os, "preadv", lambda found, buffers, at: preadv(found, [buffers[0][:7]], at))
    monkeypatch.setattr(os, "pwrite", lambda found, content, at: pwrite(found, content[:5], at))
    log = NewFile(descriptor, path)
    assert log.read_at(10, 30) == bytes(range(10, 40))
    log.write_at(50, b"x" * 23)
    assert path.read_bytes() == bytes(range(50)) + b"x" * 23 + bytes(range(73, 100))
    keep_only(log, 20, 60)
    assert path.read_bytes() == bytes(range(20, 50)) + b"x" * 10


def test_a_file_that_was_cut_meanwhile_is_reported_and_holds_up_no_one(path: Path, descriptor: int) -> None:
    with pytest.raises(
        PartitionError, match=r"00000000000000000000.log: ends at byte 100, expected 140 bytes at least"
    ):
        keep_only(NewFile(descriptor, path), 20, 140)


@pytest.mark.parametrize("error", [PartitionError("no"), OSError("no"), KeyboardInterrupt()])
def test_of_a_file_that_did_not_come_to_its_end_nothing_stays(error: BaseException, tmp_path: Path) -> None:
    def fail() -> None:
        with new_file(tmp_path / "file", None) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert list(tmp_path.iterdir()) == []
    with new_file(tmp_path / "file", None) as file:
        file.write(b"whole")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"whole"]


def test_the_disk_begins_early_and_with_each_byte_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[int, int]] = []
    monkeypatch.setattr(
        staging, "begin_write_out", lambda _, position, size_bytes: begun.append((position, position + size_bytes))
    )
    with new_file(tmp_path / "file", None) as file:
        for _ in range(5):
            file.write(bytes(7 * MIB))
    assert begun == [(0, 21 * MIB)]


def test_a_file_system_that_cannot_begin_early_is_no_error() -> None:
    reading, writing = os.pipe()
    try:
        begin_write_out(writing, 0, 100)
    finally:
        os.close(reading)
        os.close(writing)
