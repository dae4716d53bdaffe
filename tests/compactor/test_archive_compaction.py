"""Archived partitions compacted: what is left, what the commit says, what stays the same objects, and who may commit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.archive.commit import digest
from sidecar.archive.strict_json import canonical, seal
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy, StrategyInUse
from sidecar.compactor.archive.plan import CompactionRequest
from sidecar.errors import PartitionError
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.model import ObjectKey, PartName
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.runner.archives import (
    NOW_MS,
    WRITER,
    archived,
    compact_one,
    compactor,
    log_of,
    only_state,
    parts_of,
    reference_logs,
    sound,
    use,
)
from tests.runner.rig import archive, copy_partitions, tools_for
from tests.segment.made_logs import records_in, roll


@pytest.mark.parametrize(
    ("partition", "strategy"),
    [
        ("orders-0", Strategy.TIMESTAMP),
        ("append-time-0", Strategy.OFFSET),
        ("transactions-0", Strategy.HEADER),
        ("compacted-0", Strategy.HEADER),
        ("compacted-0", Strategy.OFFSET),
        ("codecs-java-0", Strategy.TIMESTAMP),
    ],
)
def test_an_archive_becomes_what_the_reference_says(
    partition: str, strategy: Strategy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, local = archived(tmp_path, partition), strategy is not Strategy.TIMESTAMP
    use(monkeypatch, store)
    before = only_state(store)
    rules = CompactionRules(NOW_MS, strategy=strategy, header="version")
    result = compact_one(store, before, rules, tmp_path if local else None)
    assert result.error is None
    after = only_state(store)
    groups = [len(output.sources) for output in result.outputs]
    assert [log_of(store, after, segment) for segment in after.segments[: len(groups)]] == reference_logs(
        store, before, rules, groups
    )
    assert result.bytes_after < result.bytes_before
    assert after.clean is not None
    assert after.clean.strategy == str(strategy)
    assert after.clean_end_offset == result.outputs[-1].end_offset
    assert (after.start_offset, after.end_offset) == (before.start_offset, before.end_offset)
    for segment in after.segments:
        old = next(found for found in before.segments if found.end_offset == segment.end_offset)
        ours, theirs = parts_of(store, after, segment), parts_of(store, before, old)
        for name in (PartName.PRODUCER_SNAPSHOT, PartName.LEADER_EPOCHS):
            assert ours[name] == theirs[name]
    assert not [key for key in store.objects if key.startswith("staging/")]
    sound(store)


def test_what_is_clean_is_not_rewritten_and_not_committed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    rules = CompactionRules(NOW_MS)
    first = compact_one(store, only_state(store), rules, tmp_path)
    compacted = only_state(store)
    assert first.commit_number == compacted.next_number - 1
    for _ in range(2):  # Sizes that were expected become sizes that are known: neighbours may still be joined once.
        last = compact_one(store, only_state(store), rules, tmp_path)
        assert last.error is None
    objects = dict(store.objects)
    again = compact_one(store, only_state(store), rules, tmp_path)
    assert again.commit_number is None
    assert all(output.unchanged for output in again.outputs)
    assert store.objects == objects


def test_another_strategy_marks_what_it_finds_unchanged_and_rewrites_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    for _ in range(3):
        compact_one(store, only_state(store), CompactionRules(NOW_MS), tmp_path)
    before = only_state(store)
    rules = CompactionRules(NOW_MS, strategy=Strategy.TIMESTAMP)
    kept = CompactionRequest(before.lineage.root, rules, WRITER, may_change_strategy=False)
    (refused,) = compactor(store, tmp_path).compact([kept])
    assert "newest compaction used strategy offset, this one would use timestamp" in str(refused.error)
    assert only_state(store) == before
    with capture_logs() as logs:
        result = compact_one(store, before, rules, tmp_path)
    (changed,) = [log for log in logs if log["event"] == "compaction_strategy_changed"]
    assert (changed["partition"], changed["old"], changed["new"]) == ("orders-0", "offset", "timestamp")
    assert result.strategy_before == StrategyInUse("offset")
    after = only_state(store)
    assert result.commit_number is not None
    assert after.segments == before.segments
    assert after.clean is not None
    assert after.clean.strategy == "timestamp"


def test_raw_segments_that_follow_are_compacted_with_all_that_lies_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    whole = only_state(store)
    middle = whole.segments[3].end_offset
    rules = CompactionRules(NOW_MS)
    request = CompactionRequest(whole.lineage.root, rules, WRITER, middle, keep_raw_ms=5)
    (first,) = compactor(store, tmp_path).compact([request])
    assert (first.error, first.left_alone) == (None, len(whole.segments) - 4)
    half = only_state(store)
    assert half.clean_end_offset == middle
    assert [segment for segment in half.segments if segment.base_offset >= middle] == list(whole.segments[4:])
    assert {found.keep_ms for found in half.removed} == {5}
    second = compact_one(store, half, rules, tmp_path)
    after = only_state(store)
    groups = [len(output.sources) for output in second.outputs]
    assert second.error is None
    assert [log_of(store, after, segment) for segment in after.segments] == reference_logs(store, half, rules, groups)
    assert max(segment.generation for segment in after.segments) == 2
    sound(store)


def test_joined_segments_have_the_leader_epochs_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a cleaner leaves the checkpoint: also of an epoch without a record that is left (3). Nothing from above the end (7)."""
    spans = {0: (1, 1, 2, 2), 4: (2, 3), 6: (5, 5), 8: (5, 7), 10: ()}
    segments = {
        base_offset: [
            build_batch([Record(offset, NOW_MS - 5_000_000, b"%d" % min(offset, 5), b"")], leader_epoch=epoch)
            for offset, epoch in enumerate(epochs, base_offset)
        ]
        for base_offset, epochs in spans.items()
    }
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore(ManualClock(NOW_MS))
    roll(log_dir, segments, 10)
    (log_dir / "orders-0" / "leader-epoch-checkpoint").write_text("0\n5\n1 0\n2 2\n3 5\n5 6\n7 9\n")
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir).errors == []
    use(monkeypatch, store)
    request = CompactionRequest(only_state(store).lineage.root, CompactionRules(NOW_MS), WRITER, 8)
    (result,) = compactor(store, tmp_path).compact([request])
    assert result.error is None
    state = only_state(store)
    joined = state.segments[0]
    assert (joined.base_offset, joined.end_offset) == (0, 8)
    assert [found.offset for found in records_in([log_of(store, state, joined)])] == [0, 1, 2, 3, 4, 7]
    assert [(entry.epoch, entry.start_offset) for entry in joined.leader_epochs] == [(1, 0), (2, 2), (3, 5), (5, 6)]
    assert parts_of(store, state, joined)[PartName.LEADER_EPOCHS] == b"0\n4\n1 0\n2 2\n3 5\n5 6\n"
    sound(store)


@pytest.mark.leaves_damage("checkpoint", "checksum_mismatch")
def test_one_damaged_partition_does_not_stop_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = archived(tmp_path, "orders-0")
    use(monkeypatch, store)
    good = only_state(store)
    root, other = good.lineage.root, good.lineage.root.replace("/0/", "/7/")
    for key in [*store.objects]:
        store.objects[key.replace(root, other)] = store.objects[key].replace(b'"partition":0', b'"partition":7')
    resealed(store, other)
    damaged = other + "/" + good.segments[2].log_key
    store.objects[damaged] = store.objects[damaged][:-7] + b"\0" * 7
    rules = CompactionRules(NOW_MS)
    bad, fine = compactor(store, tmp_path).compact(
        [CompactionRequest(ObjectKey(name), rules, WRITER) for name in (other, root)]
    )
    assert isinstance(bad.error, PartitionError)
    assert damaged in str(bad.error)
    assert fine.error is None
    assert fine.commit_number is not None


def resealed(store: MemoryStore, root: str) -> None:
    """Commits that were altered get seals and links that fit."""
    previous = None
    for key in sorted(key for key in store.objects if key.startswith(f"{root}/commits/")):
        commit = json.loads(store.objects[key])["commit"]
        commit["previous_sha256"] = previous
        inner = canonical(commit)
        store.objects[key] = seal("commit", inner)
        previous = digest(store.objects[key])
