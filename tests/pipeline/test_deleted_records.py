"""A log start inside a segment is recorded where only DeleteRecords can have moved it there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sidecar.archive.actions import DeleteRecords
from sidecar.archive.state import PartitionState
from sidecar.discovery.scan import scan_log_dirs
from sidecar.discovery.topic_filter import TopicFilter
from sidecar.logformat.checkpoints import write_offset_checkpoint
from sidecar.logformat.names import LOG_START_CHECKPOINT
from sidecar.model import PartitionFiles, TopicPartition, TopicPolicy
from sidecar.pipeline.deleted_records import deleted_on_purpose
from sidecar.ports import PartitionFacts
from tests.fakes.memory_store import MemoryStore
from tests.golden import wall_clock_ms
from tests.pipeline.rig import archive, archived_states, copy_partitions, remove_offsets, tools_for

NOW_MS = wall_clock_ms("4.3.0")
DAY_MS = 86_400_000
UNLIMITED = TopicPolicy(cleanup_policy=frozenset({"delete"}), retention_ms=-1, retention_bytes=-1)
ORDERS = TopicPartition("orders", 0)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> tuple[PartitionFiles, PartitionState]:
    directory = tmp_path_factory.mktemp("orders")
    log_dir, store = copy_partitions(directory, "orders-0"), MemoryStore()
    with tools_for(log_dir, store, directory / "state") as tools:
        archive(tools, log_dir)
    (files,) = scan_log_dirs([log_dir], TopicFilter((".*",))).partitions
    return files, archived_states(store)["orders-0"]


def recorded(
    seen: tuple[PartitionFiles, PartitionState], start_offset: int, policy: TopicPolicy = UNLIMITED, **options: Any
) -> list[DeleteRecords]:
    files, state = seen
    facts = PartitionFacts(ORDERS, None, True, 0, 0, options.pop("log_start_offset", start_offset), **options)
    return deleted_on_purpose(files, facts, policy, state, state.end_offset or 0, NOW_MS)


def test_a_start_inside_a_segment_is_deletion_and_a_start_at_a_border_is_not(
    seen: tuple[PartitionFiles, PartitionState],
) -> None:
    files, state = seen
    borders = [segment.base_offset for segment in files.segments]
    assert len(borders) > 3
    for border in borders:
        assert recorded(seen, border) == []
        assert recorded(seen, border + 1) == [DeleteRecords(border + 1)]
    # The leader's own word may be newer than its checkpoint file.
    assert recorded(seen, 0, log_start_offset=0, cluster_start_offset=borders[2] + 1) == [DeleteRecords(borders[2] + 1)]
    assert recorded(seen, (state.end_offset or 0) + 1) == []  # in the active segment: told when that is archived


@pytest.mark.parametrize(
    ("policy", "explains"),
    [
        (TopicPolicy(), False),
        (TopicPolicy(frozenset({"delete"}), retention_ms=1000), True),
        (TopicPolicy(frozenset({"delete"}), retention_ms=DAY_MS), False),
        (TopicPolicy(frozenset({"compact"}), retention_ms=1000), False),
        (TopicPolicy(frozenset({"delete"}), retention_ms=-1, retention_bytes=1000), True),
        (TopicPolicy(frozenset({"delete"}), retention_ms=-1, retention_bytes=10**9), False),
    ],
)
def test_retention_explains_a_start_that_a_follower_took_over(
    policy: TopicPolicy, explains: bool, seen: tuple[PartitionFiles, PartitionState]
) -> None:
    offset = seen[0].segments[2].end_offset - 1
    assert recorded(seen, offset, policy) == ([] if explains else [DeleteRecords(offset)])


def test_it_is_committed_with_the_next_segment_and_only_once(tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    bases = sorted(int(path.stem) for path in (log_dir / "orders-0").glob("*.log"))
    remove_offsets(log_dir / "orders-0", lambda offset: offset >= bases[1])
    (log_dir / LOG_START_CHECKPOINT).write_bytes(write_offset_checkpoint({ORDERS: bases[1] + 5}))
    with tools_for(log_dir, store, tmp_path / "state") as tools:
        assert archive(tools, log_dir).errors == []
    state = archived_states(store)["orders-0"]
    assert (state.start_offset, state.deleted_before_offset) == (bases[1], bases[1] + 5)
    said = [key for key, body in store.objects.items() if "/commits/" in key and b'"delete_records"' in body]
    assert [key.rpartition("/")[2] for key in said] == [f"{0:020d}.json"]
