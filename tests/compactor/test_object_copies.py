"""Copies of archived segments in files of this machine, where the disk does not give back what was written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sidecar.compactor.archive.archived_log import RANGE_BYTES, fetched_into
from sidecar.errors import StagingFull
from sidecar.model import ObjectKey
from sidecar.rewriting.work_files import nameless_file
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore


@pytest.mark.parametrize("size_bytes", [1000, RANGE_BYTES + 1000])
def test_a_copy_that_cannot_be_read_back_is_an_error_of_the_work_files(
    size_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the partition, so that the others go on; an OSError would end the whole job."""

    def bad_sector(_descriptor: int, _buffers: object, _position: int) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store, key = MemoryStore(ManualClock(0)), ObjectKey("segment.log")
    store.objects[key] = bytes(size_bytes)
    with nameless_file(tmp_path) as file, fetched_into(file, store, key, size_bytes) as read_at:
        monkeypatch.setattr(os, "preadv", bad_sector)
        with pytest.raises(StagingFull, match="Input/output error"):
            read_at(size_bytes - 100, memoryview(bytearray(100)))
