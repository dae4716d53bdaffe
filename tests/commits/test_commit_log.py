"""What is read of a commit log in a store: whole, abbreviated by checkpoints, damaged, and among foreign objects."""

from __future__ import annotations

from functools import partial

import pytest
from structlog.testing import capture_logs

from sidecar.archive.actions import Add
from sidecar.archive.checkpoint import encode_checkpoint
from sidecar.archive.commit import COMMIT_BYTES_MAX, decode_commit, digest, encode_commit
from sidecar.archive.keys import below, checkpoint_key
from sidecar.archive.state import empty_state
from sidecar.archive.strict_json import seal, unseal
from sidecar.commits import stored_commits
from sidecar.commits.lineages import find_all_lineages, find_lineages
from sidecar.commits.stored_commits import StoredCommits
from sidecar.errors import CorruptFile, ObjectDamaged
from sidecar.model import ObjectKey
from tests.archive.builders import CLUSTER_ID, LINEAGE, NAMELESS, PARTITION, a_commit, a_segment, after
from tests.commits.commit_logs import CHECKPOINT_9, CHECKPOINT_19, ROOT, a_log, filled, key_of
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore


def test_what_was_appended_is_read() -> None:
    store = MemoryStore()
    state = filled(store, 3)
    assert (state.next_number, state.end_offset) == (3, 300)
    assert a_log(store).read() == state
    first, second = (store.objects[key_of(number)] for number in (0, 1))
    assert decode_commit(second).previous_sha256 == digest(first)


def test_an_empty_store_has_an_empty_state() -> None:
    assert a_log(MemoryStore()).read() == empty_state(LINEAGE)


def test_ten_thousand_requests_are_spared_by_checkpoints() -> None:
    store = MemoryStore()
    state = filled(store, 25, checkpoint_every=10)
    assert {key for key in store.objects if "/checkpoints/" in key} == {CHECKPOINT_9, CHECKPOINT_19}
    store.calls.clear()
    assert a_log(store).read() == state
    assert store.calls["read"] == 2 + 5, "the checkpoint, its commit, and those after it"


def test_every_damaged_checkpoint_is_passed_over_with_a_warning() -> None:
    store = MemoryStore()
    state = filled(store, 25, checkpoint_every=10)
    for damaged, reads in (([CHECKPOINT_19], 3 + 15), ([CHECKPOINT_9], 2 + 25)):
        for key in damaged:
            store.damage(key, lambda data: data[:-9] + b"!" + data[-8:])
        store.calls.clear()
        with capture_logs() as logs:
            assert a_log(store).read() == state
        assert {entry["event"] for entry in logs} == {"checkpoint_ignored"}
        assert store.calls["read"] == reads


def test_an_object_that_the_store_calls_damaged_is_a_damaged_one() -> None:
    store = MemoryStore()
    state = filled(store, 25, checkpoint_every=10)

    def damage(operation: str, key: str) -> None:
        if operation == "read" and key in damaged:
            raise ObjectDamaged(f"{key}: read with another CRC-32C")

    store.before = damage
    damaged = {CHECKPOINT_19}
    assert a_log(store).read() == state
    damaged = {key_of(22)}
    with pytest.raises(CorruptFile) as caught:
        a_log(store).read()
    assert (caught.value.file, str(caught.value)) == (key_of(22), f"{key_of(22)}: read with another CRC-32C")


@pytest.mark.parametrize("commits", [10, 12])
def test_a_checkpoint_of_another_history_stops_readers(commits: int) -> None:
    store = MemoryStore()
    filled(store, commits, checkpoint_every=10)
    other = after(empty_state(LINEAGE), *[[Add(a_segment(number * 7, number * 7 + 7))] for number in range(10)])
    store.objects[CHECKPOINT_9] = encode_checkpoint(other)
    with pytest.raises(
        CorruptFile, match=r"One of them was replaced.*Until then, every command that reads this commit stops"
    ) as caught:
        a_log(store).read()
    assert caught.value.file == key_of(9)


@pytest.mark.parametrize("is_damaged", [False, True], ids=["valid", "damaged"])
@pytest.mark.parametrize("commits", [20, 25])
def test_nothing_is_read_above_a_checkpoint_whose_commit_is_missing(commits: int, is_damaged: bool) -> None:
    """The key of a damaged checkpoint still tells that its commit was there: to go on would begin another history."""
    store = MemoryStore()
    filled(store, commits, checkpoint_every=10)
    if is_damaged:
        store.damage(CHECKPOINT_19, lambda data: data[:-9] + b"!" + data[-8:])
    commit = store.objects.pop(key_of(19))
    with pytest.raises(
        CorruptFile, match=r"commit 19 is missing.*restore it from a replica.*they go on if it is above this commit"
    ) as caught:
        a_log(store).read()
    assert caught.value.file == key_of(19)
    store.objects[key_of(19)] = commit
    assert a_log(store).read().next_number == commits


@pytest.mark.parametrize("at_once", [True, False])
def test_a_stale_listing_is_no_missing_commit(at_once: bool) -> None:
    """Listings show the checkpoint, or later commits, but not all commits. These are read by key before an alarm."""
    store = MemoryStore(ManualClock(1_700_000_000_000))
    store.listings_stale_ms, store.lists_by_page = 10_000, at_once
    state = filled(store, 25, checkpoint_every=10)
    for hidden, shown in (([19], 25), ([19, 20, 22], 25), ([21], 25), ([0, 3], 25), ([24], 24), (range(25), 20)):
        store.modified_ms = {key_of(number): store.clock.now_ms() for number in hidden}
        log = a_log(store)
        assert log.read().next_number == shown
        assert log.refresh(state) == state
        assert log.read() == state, "what was seen once is not forgotten"
        # Nothing at all is listed: the first commit is asked for by key, and all that follow.
        assert a_log(store).read_whole_chain().next_number == (25 if shown == 20 else shown)


def test_a_checkpoint_that_fails_does_not_fail_the_commit() -> None:
    store = MemoryStore(faults=[Fault("put_if_absent", 0, FaultKind.DENIED, "/checkpoints/")])
    with capture_logs() as logs:
        state = filled(store, 11, checkpoint_every=10)
    assert [entry["event"] for entry in logs] == ["checkpoint_not_written"]
    assert below(ROOT, checkpoint_key(10)) in store.objects, "the next commit makes up for it"
    assert a_log(store).read() == state


@pytest.mark.parametrize("missing", [0, 3, 6])
def test_a_missing_commit_is_an_error(missing: int) -> None:
    store = MemoryStore()
    filled(store, 8)
    del store.objects[key_of(missing)]
    with pytest.raises(CorruptFile, match=f"commit {missing} is missing") as caught:
        a_log(store).read()
    assert caught.value.file == key_of(missing)


def test_a_lost_end_shows_as_soon_as_it_was_seen_before() -> None:
    store = MemoryStore()
    state = filled(store, 10, checkpoint_every=10)
    del store.objects[key_of(9)]
    for read in (a_log(store).read, partial(a_log(store).refresh, state)):
        with pytest.raises(CorruptFile, match="commit 9 is missing, although this sidecar, a checkpoint or"):
            read()


@pytest.mark.parametrize("number", [1, pytest.param(3, id="the newest vouches for itself")])
def test_an_altered_commit_is_an_error(number: int) -> None:
    store = MemoryStore()
    filled(store, 4)
    store.damage(key_of(number), lambda data: data.replace(b'"batch_count":7', b'"batch_count":8'))
    with pytest.raises(CorruptFile, match="damaged or was edited"):
        a_log(store).read()


def test_a_commit_that_was_edited_and_sealed_again_breaks_the_chain() -> None:
    store = MemoryStore()
    filled(store, 4)

    def edit(data: bytes) -> bytes:
        return seal("commit", unseal("commit", data).replace(b'"batch_count":7', b'"batch_count":8'))

    store.damage(key_of(1), edit)
    with pytest.raises(CorruptFile, match="altered or replaced"):
        a_log(store).read()


@pytest.mark.parametrize("data", [b"", b"{}", b"\0" * 1000, b"[" * 100_000])
def test_a_commit_that_is_none_is_an_error_with_its_key(data: bytes) -> None:
    store = MemoryStore()
    filled(store, 3)
    store.objects[key_of(2)] = data
    with pytest.raises(CorruptFile) as caught:
        a_log(store).read()
    assert caught.value.file == key_of(2)


def test_a_huge_commit_is_not_even_read() -> None:
    store = MemoryStore()
    filled(store, 2)
    store.objects[key_of(1)] = b" " * (16 * 1024 * 1024 + 1)
    store.calls.clear()
    with pytest.raises(CorruptFile, match="this program writes at most"):
        a_log(store).read()
    assert store.calls["read"] == 0


class CountsBytes(MemoryStore):
    """`most`: bytes of the largest answer to a read."""

    most = 0

    def read(self, key: ObjectKey, position: int = 0, size_bytes: int | None = None, *, whole: bool = False) -> bytes:
        data = super().read(key, position, size_bytes, whole=whole)
        self.most = max(self.most, len(data))
        return data


def test_a_huge_commit_that_no_listing_shows_is_not_read_whole() -> None:
    store = CountsBytes()
    stored = StoredCommits(store, ROOT)
    store.objects[key_of(0)] = b" " * (2 * COMMIT_BYTES_MAX)
    with pytest.raises(CorruptFile, match="this program writes at most") as caught:
        stored.commit(0)
    assert caught.value.file == key_of(0)
    assert store.most == COMMIT_BYTES_MAX + 1


def test_a_checkpoint_that_grew_since_it_was_listed_is_not_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    store = CountsBytes()
    filled(store, 10, checkpoint_every=10)
    (listed,) = store.list(CHECKPOINT_9)
    monkeypatch.setattr(stored_commits, "CHECKPOINT_BYTES_MAX", listed.size_bytes)
    stored = StoredCommits(store, ROOT)
    assert stored.checkpoint(9, listed).next_number == 10
    store.objects[CHECKPOINT_9] += b" " * 1000
    with pytest.raises(CorruptFile, match="this program writes at most"):
        stored.checkpoint(9, listed)
    assert store.most == listed.size_bytes + 1


def test_a_commit_under_another_number_is_an_error() -> None:
    store = MemoryStore()
    filled(store, 3)
    store.objects[key_of(2)] = store.objects[key_of(1)]
    with pytest.raises(CorruptFile, match="holds commit 1"):
        a_log(store).read()


def test_foreign_objects_among_the_commits_are_ignored() -> None:
    store = MemoryStore()
    state = filled(store, 2)
    store.objects[f"{ROOT}/commits/README.txt"] = b"hello"
    assert a_log(store).read() == state


def test_lineages_are_found_and_foreign_folders_passed_over() -> None:
    store = MemoryStore()
    for key in (
        f"{ROOT}/commits/x",
        f"{NAMELESS.root}/segments/y",
        f"{CLUSTER_ID}/orders/3/nonsense/z",
        f"{CLUSTER_ID}/orders/03/0/z",
        f"{CLUSTER_ID}/..x y/0/0/z",
        f"{CLUSTER_ID}/other/0/0/z",
        "stray.txt",
    ):
        store.objects[key] = b""
    assert find_lineages(store, CLUSTER_ID, PARTITION) == (NAMELESS, LINEAGE)
    assert [str(lineage) for lineage in find_all_lineages(store)] == [
        f"{CLUSTER_ID}/orders/3/0",
        ROOT,
        f"{CLUSTER_ID}/other/0/0",
    ]
    assert find_all_lineages(store, include=lambda topic: topic == "orders") == (NAMELESS, LINEAGE)


def test_the_bytes_that_stand_are_those_of_the_commit() -> None:
    store = MemoryStore()
    state = filled(store, 1)
    data = store.objects[key_of(0)]
    assert digest(data) == state.last_sha256
    assert encode_commit(decode_commit(data)) == data
    assert decode_commit(data).actions == a_commit(empty_state(LINEAGE), Add(a_segment(0))).actions
