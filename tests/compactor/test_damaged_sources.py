"""A bit of an archived segment flips where no batch's own checksum looks: a compaction commits nothing of it, on any road."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from sidecar.archive.bundle import log_size_bytes
from sidecar.archive.keys import below
from sidecar.compaction.rules import CompactionRules
from sidecar.compactor.archive.compactor import ArchiveCompactor
from sidecar.compactor.archive.plan import CompactionRequest, PartitionCompaction
from sidecar.errors import CorruptFile, PartitionError
from sidecar.logformat.batches import scan_bytes
from sidecar.model import ObjectKey
from sidecar.rewriting.local_engine import LocalEngine
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.archives import NOW_MS, SETTINGS, WRITER, archived, log_of, only_state, reference_logs, sound, use
from tests.runner.rig import archived_states

RULES = CompactionRules(NOW_MS)
ROADS = {
    "copies that stay": (True, 1 << 40),
    "a copy while it is scanned": (True, None),
    "ranges only": (True, 0),
    "no work directory": (False, 0),
}
"""Whether there is a work directory, and how much may be written there; None: the largest segment."""
EPOCH_BYTE, OFFSET_BYTE = 15, 7


@pytest.fixture(scope="module", name="archive")
def _archive(tmp_path_factory: pytest.TempPathFactory) -> MemoryStore:
    return archived(tmp_path_factory.mktemp("archived"), "compacted-0")


class FlippedOnce(MemoryStore):
    """One bit of one object is read flipped, in the read number `nth` of its byte only."""

    def __init__(self, archive: MemoryStore, key: str, position: int, nth: int) -> None:
        super().__init__(ManualClock(NOW_MS))
        self.objects, self.modified_ms = dict(archive.objects), dict(archive.modified_ms)
        self.key, self.position, self.nth = key, position, nth
        self.reads = Counter[str]()

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        found = bytearray(super().read(key, position, size_bytes, whole=whole))
        if key == self.key and position <= self.position < position + len(found):
            if self.reads[key] == self.nth:
                found[self.position - position] ^= 4
            self.reads[key] += 1
        return bytes(found)


def compact(store: MemoryStore, road: str, place: Path) -> tuple[PartitionCompaction, ...]:
    states = archived_states(store).values()
    largest = max(log_size_bytes(segment) for state in states for segment in state.segments)
    has_place, free_bytes = ROADS[road]
    compactor = ArchiveCompactor(
        SETTINGS,
        LocalEngine(),
        store.clock,
        place if has_place else None,
        split_bytes=4096,
        free_bytes=lambda _: largest if free_bytes is None else free_bytes,
    )
    return compactor.compact([CompactionRequest(state.lineage.root, RULES, WRITER) for state in states])


def last_batch(log: bytes) -> int:
    return max(int(columns.position[-1]) for columns in scan_bytes(log))


def before_a_gap(log: bytes) -> int:
    """A batch whose base offset may be 4 more: the next one begins behind its end even then."""
    (columns,) = scan_bytes(log)
    ends, nexts = columns.last_offset[:-1], columns.base_offset[1:]
    fits = (columns.base_offset[:-1] & 4 == 0) & (ends + 4 < nexts)
    return int(columns.position[:-1][fits][0])


@pytest.mark.leaves_damage("checksum_mismatch")
@pytest.mark.parametrize("road", ROADS)
@pytest.mark.parametrize("byte", [EPOCH_BYTE, OFFSET_BYTE])
def test_a_damaged_source_is_named_and_replaces_nothing_while_others_go_on(
    archive: MemoryStore, byte: int, road: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore(ManualClock(NOW_MS))
    store.objects, store.modified_ms = dict(archive.objects), dict(archive.modified_ms)
    use(monkeypatch, store)
    if byte == OFFSET_BYTE:  # compaction leaves gaps
        compact(store, road, tmp_path)
    bad, other = only_state(store), archived(tmp_path / "other", "orders-0")
    store.objects |= other.objects
    store.modified_ms |= other.modified_ms
    segment = bad.segments[0]
    log, key = bytearray(log_of(store, bad, segment)), below(bad.lineage.root, segment.log_key)
    log[byte + (before_a_gap(log) if byte == OFFSET_BYTE else last_batch(log))] ^= 4
    store.objects[key] = bytes(log)
    objects = {key: content for key, content in store.objects.items() if key.startswith(bad.lineage.root)}
    results = {found.request.root: found for found in compact(store, road, tmp_path)}
    error = results.pop(bad.lineage.root).error
    assert isinstance(error, CorruptFile)
    assert error.file == key
    assert "but the commit says" in str(error)
    assert {key: content for key, content in store.objects.items() if key.startswith(bad.lineage.root)} == objects
    (fine,) = results.values()
    assert (fine.error, fine.commit_number is None) == (None, False)


@pytest.mark.parametrize("road", ROADS)
def test_each_read_of_a_source_is_of_proven_bytes(
    archive: MemoryStore, road: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transfers are not checked by every store: what is read a second time must be what the first read proved."""
    before = only_state(archive)
    refused = Counter[int]()
    for segment in before.segments[:-1]:  # a transaction is open in the last one
        nth = 0
        while True:
            key = below(before.lineage.root, segment.log_key)
            store = FlippedOnce(archive, key, last_batch(log_of(archive, before, segment)) + EPOCH_BYTE, nth)
            use(monkeypatch, store)
            (found,) = compact(store, road, tmp_path)
            if found.error is None:
                after = only_state(store)
                groups = [len(output.sources) for output in found.outputs]
                logs = [log_of(store, after, one) for one in after.segments[: len(groups)]]
                assert logs == reference_logs(archive, before, RULES, groups)
                sound(store)
            else:
                assert isinstance(found.error, PartitionError)
                assert store.objects == archive.objects
                refused[nth] += 1
            if store.reads[key] <= nth:
                break
            nth += 1
    # Of ranges, headers come first: whatever depends on them is compared with what the scan reads.
    assert refused[road == "ranges only"] == len(before.segments) - 1
    assert (max(refused) > 0) == (road != "copies that stay")
