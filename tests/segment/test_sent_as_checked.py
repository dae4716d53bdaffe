"""What is committed is what was checked: a disk, or memory, that gives other bytes at the second read of a file is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c

from producer_state.table import ProducerTable
from sidecar.archive.keys import below
from sidecar.commits.checked_upload import send_checked
from sidecar.discovery.partition_directory import read_partition_directory
from sidecar.errors import ObjectDamaged, SegmentChanged
from sidecar.model import ObjectKey, TopicPartition
from sidecar.partition.run_limits import RunLimits
from sidecar.ports import ObjectFacts, UploadSource
from sidecar.segment.local_disk import LocalDisk
from sidecar.segment.reading import ReadingTask, read_segment
from sidecar.storage.source import BytesSource, FileSource
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.golden import golden
from tests.runner.rig import archive, archived_states, ranges, rolled_ranges, tools_for
from tests.verifying import verify_partition

TOPIC, PARTITION = "append-time", "append-time-0"
FIRST_LOG = f"{PARTITION}/{0:020d}.log"


class Killed(BaseException):
    """The process ends here."""


def give_other_bytes(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """So many reads of the first segment for an upload give one bit that is not in the file."""
    read_at, left = FileSource.read_at, [times]

    def with_another_bit(source: FileSource, position: int, size_bytes: int) -> bytes:
        found = bytearray(read_at(source, position, size_bytes))
        if left[0] and source.name.endswith(FIRST_LOG):
            left[0] -= 1
            found[len(found) // 2] ^= 1
        return bytes(found)

    monkeypatch.setattr(FileSource, "read_at", with_another_bit)


def require_sound(store: MemoryStore, log_dir: Path) -> None:
    state = archived_states(store)[PARTITION]
    assert ranges(state) == rolled_ranges(log_dir, PARTITION)
    found = verify_partition(store, ObjectKey(state.lineage.root), ManualClock(0), deep=True)
    assert (found.problems, found.orphans) == ((), ())


@pytest.mark.parametrize("times", [1, 2])
def test_an_upload_of_other_bytes_is_discarded_and_repeated(
    times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_dir, store = golden("4.3.0") / "logs", MemoryStore()
    give_other_bytes(monkeypatch, times)
    with tools_for(log_dir, store, tmp_path) as context:
        for _ in range(times):
            (error,) = archive(context, log_dir, TOPIC).errors
            assert isinstance(error, SegmentChanged)
            assert str(error).startswith(f"{log_dir / FIRST_LOG}: had CRC-32C ")
            assert "check the disk and the memory" in str(error)
            assert [key for key in store.objects if "/segments/" in key or "/commits/" in key] == []
            assert context.journal.count() == 0
        assert archive(context, log_dir, TOPIC).errors == []
    require_sound(store, log_dir)


def test_an_interrupted_upload_of_other_bytes_is_discarded_and_repeated(tmp_path: Path) -> None:
    """The journal says what was sent, maybe by a version that did not compare it."""
    log_dir, store = golden("4.3.0") / "logs", MemoryStore()

    def die(operation: str, key: str) -> None:
        if operation == "upload" and key.endswith(".indexes"):
            raise Killed

    store.before = die
    with pytest.raises(Killed), tools_for(log_dir, store, tmp_path) as context:
        archive(context, log_dir, TOPIC)
    store.before = lambda _operation, _key: None
    with tools_for(log_dir, store, tmp_path) as context:
        (root,) = context.journal.roots()
        attempt = context.journal.attempts(root)[0]
        key = below(root, attempt.log_key)
        store.objects[key] = store.objects[key][:-1] + b"?"
        context.journal.log_uploaded(attempt.segment_id, crc32c(store.objects[key]))
        (error,) = archive(context, log_dir, TOPIC).errors
        assert isinstance(error, SegmentChanged)
        assert str(error).startswith(f"{log_dir / FIRST_LOG}: had CRC-32C ")
        assert key not in store.objects
        assert archive(context, log_dir, TOPIC).errors == []
    require_sound(store, log_dir)


@pytest.mark.parametrize("is_cut", [False, True])
def test_the_check_gives_the_checksum_of_every_byte_that_is_sent(is_cut: bool) -> None:
    log_dir = golden("4.3.0") / "logs"
    files = read_partition_directory(TopicPartition(TOPIC, 0), log_dir, log_dir / PARTITION)
    segment = files.segments[0]
    with segment.log.path.open("rb") as file:
        if is_cut:
            cuts = (LocalDisk().cut(segment, offset, file.fileno()) for offset in range(1, segment.end_offset))
            segment = next(cut for cut in cuts if cut is not None)
        task = ReadingTask(segment, ProducerTable.blank(segment.base_offset), None, 0, RunLimits().index_interval_bytes)
        reading = read_segment(task, file.fileno(), lambda _bytes: None)
    assert (segment.start_position > 0) is is_cut
    assert reading.log_crc32c == crc32c(segment.log.path.read_bytes()[segment.start_position :])


class WithoutChecksums(MemoryStore):
    """Stores other bytes than it is sent, as many."""

    def upload(self, key: ObjectKey, source: UploadSource) -> int:
        sent_crc32c = super().upload(key, source)
        self.objects[key] = b"?" + self.objects[key][1:]
        return sent_crc32c

    def head(self, key: ObjectKey) -> ObjectFacts | None:
        facts = super().head(key)
        return None if facts is None else replace(facts, crc32c=None)


def test_what_a_store_without_checksums_has_is_compared_on_demand() -> None:
    store, body = WithoutChecksums(), bytes(range(256))
    send_checked(store, ObjectKey("one"), BytesSource(body), crc32c(body))
    with pytest.raises(ObjectDamaged, match="nothing was committed"):
        send_checked(store, ObjectKey("two"), BytesSource(body), crc32c(body), reads_back=True)
