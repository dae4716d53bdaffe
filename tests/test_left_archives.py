"""What a test leaves behind is verified: nothing that is wrong goes unsaid, and nothing that is said may be missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.outcomes import Failed

from tests.commits.commit_logs import filled
from tests.fakes.memory_store import MemoryStore
from tests.left_archives import LeftArchives
from tests.restore.archives import archived


@pytest.fixture
def store() -> MemoryStore:
    """Made before the fixture under test watches, and damaged by some tests: a copy is what they leave."""
    return archived()


def judged(store: MemoryStore, *declared: str) -> None:
    left = LeftArchives()
    left.made(store)
    left.require({*declared}, ())


def lose_a_log(store: MemoryStore) -> None:
    store.objects.pop(next(key for key in sorted(store.objects) if key.endswith(".log")))


def test_a_sound_archive_is_no_finding(store: MemoryStore) -> None:
    judged(store)
    with pytest.raises(Failed, match=r"finds \[\], declared are \['missing_object'\]"):
        judged(store, "missing_object")


@pytest.mark.leaves_damage("missing_object")
def test_damage_is_a_finding_unless_it_is_declared(store: MemoryStore) -> None:
    judged(store)  # Remembered, and damaged all the same.
    lose_a_log(store)
    judged(store, "missing_object")
    for other in ((), ("checksum_mismatch",), ("missing_object", "checksum_mismatch")):
        with pytest.raises(Failed, match=r"finds \['missing_object'\]"):
            judged(store, *other)


def test_a_changed_byte_is_a_finding_whoever_left_the_same_archive_before(store: MemoryStore) -> None:
    judged(store)
    key = max((key for key in store.objects if key.endswith(".log")), key=lambda key: len(store.objects[key]))
    whole = store.objects[key]
    store.objects[key] = whole[:-1] + bytes([whole[-1] ^ 1])
    with pytest.raises(Failed, match="mismatch"):
        judged(store)
    store.objects[key] = whole


def test_archives_in_files_are_found_at_any_depth(store: MemoryStore, tmp_path: Path) -> None:
    lose_a_log(store)
    for key, body in store.objects.items():
        path = tmp_path / "objects" / "bucket" / "prefix" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    with pytest.raises(Failed, match=r"finds \['missing_object'\]"):
        LeftArchives().require(set(), [tmp_path])
    store.objects.clear()
    for path in tmp_path.rglob("*.json"):
        path.unlink()


@pytest.mark.leaves_damage("missing_object")
def test_of_many_stores_the_first_counts_as_well() -> None:
    left, damaged = LeftArchives(), archived()
    whole = dict(damaged.objects)
    lose_a_log(damaged)
    left.made(damaged)
    for _ in range(100):
        left.made(MemoryStore())
    damaged.objects = whole
    with pytest.raises(Failed, match=r"finds \['missing_object'\]"):
        left.require(set(), ())


def test_a_commit_log_alone_is_no_archive() -> None:
    store = MemoryStore()
    filled(store, 3)
    judged(store)


def test_files_of_a_server_that_keeps_an_object_in_a_directory_are_no_archive(
    store: MemoryStore, tmp_path: Path
) -> None:
    lose_a_log(store)
    for key, body in store.objects.items():
        path = tmp_path / "objects" / "bucket" / key / "xl.meta"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    LeftArchives().require(set(), [tmp_path])
    store.objects.clear()
