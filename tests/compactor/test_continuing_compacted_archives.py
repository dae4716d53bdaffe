"""Without topic ids an archive goes on from another broker's disk also where nothing in it is raw any more."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sidecar.archive.commit import Writer
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.compactor.archive.plan import CompactionRequest
from sidecar.verify.verify import verify_archive
from tests.compactor.before_upload_rig import rig
from tests.fakes.memory_store import MemoryStore
from tests.golden import wall_clock_ms
from tests.runner.archives import compactor, only_state, use
from tests.runner.rig import archive, copy_partitions, ranges, rolled_ranges, tools_for

OLD = "2.7.2"
"""Its brokers know of no topic ids."""


def cut_last(log_dir: Path, partition: str, count: int) -> None:
    """Take away the active segment and the last ones before it, so that another one counts as active."""
    bases = sorted({path.name[:20] for path in (log_dir / partition).glob("*.log")})
    for base in bases[-count:]:
        for path in (log_dir / partition).glob(f"{base}.*"):
            path.unlink()


def go_on(store: MemoryStore, log_dir: Path, state_dir: Path, version: str) -> list[str]:
    """A round of a sidecar that has no journal of this partition. What went wrong."""
    with tools_for(log_dir, store, state_dir, version) as context:
        return [str(error) for error in archive(context, log_dir, "orders").errors]


def compact(store: MemoryStore, rules: CompactionRules) -> None:
    """As the leader that archived it."""
    state = only_state(store)
    request = CompactionRequest(state.lineage.root, rules, Writer(1, state.leader_epoch, "compacting"))
    (result,) = compactor(store).compact([request])
    assert result.error is None


@pytest.mark.parametrize("strategies", [[Strategy.OFFSET], [Strategy.OFFSET, Strategy.TIMESTAMP]])
def test_another_leader_goes_on_where_all_was_compacted(
    strategies: list[Strategy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (copy_partitions(tmp_path / name, "orders-0", version=OLD) for name in "ab")
    cut_last(one, "orders-0", 3)
    store = MemoryStore()
    assert go_on(store, one, tmp_path / "s1", OLD) == []
    use(monkeypatch, store)
    raw = only_state(store).segments[-1]
    for strategy in strategies:
        compact(store, CompactionRules(wall_clock_ms(OLD), strategy=strategy))
    assert 0 not in {segment.generation for segment in only_state(store).segments}
    assert only_state(store).segments[-1].raw_batches == raw.raw_batches
    assert go_on(store, two, tmp_path / "s2", OLD) == []
    state = only_state(store)
    assert state.end_offset == rolled_ranges(two, "orders-0")[-1][1]
    with tools_for(two, store, tmp_path / "s3", OLD) as context:
        assert [found.problems for found in verify_archive(store, context.clock, deep=True)] == [()]


def test_a_topic_made_anew_is_distinguished_from_a_compacted_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (copy_partitions(tmp_path / name, "orders-0", version=OLD) for name in "ab")
    cut_last(one, "orders-0", 3)
    store = MemoryStore()
    assert go_on(store, one, tmp_path / "s1", OLD) == []
    use(monkeypatch, store)
    state = only_state(store)
    compact(store, CompactionRules(wall_clock_ms(OLD)))
    path = two / "orders-0" / f"{state.segments[-1].base_offset:020d}.log"
    data = bytearray(path.read_bytes())
    at = 0
    while at < len(data):  # another last batch, of the same offsets
        last, at = at, at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    data[last + 17] ^= 1
    path.write_bytes(data)
    (problem,) = go_on(store, two, tmp_path / "s2", OLD)
    assert "CRC" in problem
    assert only_state(store).end_offset == state.end_offset


def test_another_leader_goes_on_where_all_was_compacted_before_its_upload(tmp_path: Path) -> None:
    with rig(tmp_path, "orders-0") as site:
        whole = tmp_path / "whole"
        shutil.copytree(site.log_dir, whole)
        for log_dir in (site.log_dir, whole):
            (log_dir / "orders-0" / "partition.metadata").unlink()
        cut_last(site.log_dir, "orders-0", 3)
        site.round()
        assert site.compactor.cycle()
        assert site.round().errors == []
        before = only_state(site.store)
        assert before.topic_id is None
        assert before.segments[-1].generation == 1
        assert go_on(site.store, whole, tmp_path / "other", "4.3.0") == []
        state = only_state(site.store)
        assert ranges(state) == rolled_ranges(whole, "orders-0")
        assert [found.problems for found in verify_archive(site.store, site.context.clock, deep=True)] == [()]
