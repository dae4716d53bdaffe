"""What an archive must be at the end, whatever happened: whole, the leader's log byte for byte, and known to nobody else."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from producer_state.snapshot import ProducerEntry, read_snapshot
from sidecar.archive.actions import Add
from sidecar.archive.commit import Commit, decode_commit
from sidecar.archive.keys import COMMITS, below
from sidecar.archive.state import PartitionState
from sidecar.broker.cluster_view import LiveProducer
from sidecar.clock import SystemClock
from sidecar.model import ObjectKey, PartName, TopicPartition
from sidecar.ports import ObjectStore
from tests.oracle import Oracle
from tests.real.daemon import Daemon
from tests.real.product import parts_of
from tests.real.soak_beside import Archived, active_bases, reported
from tests.real.soak_live_producers import producers_behind, remembered_at_rest
from tests.real.topics import end_offset, wait_until
from tests.runner.rig import ranges
from tests.servers.kafka import KafkaBroker
from tests.verifying import verify_partition

FOLLOW_TIMEOUT_S = 180.0


@dataclass(frozen=True)
class Unfinished:
    """An attempt that a sidecar's journal still knows. `end_offset` is exclusive."""

    segment_id: str
    root: str
    base_offset: int
    end_offset: int
    is_uploaded: bool
    commit_number: int | None


def unfinished_attempts(state_dir: Path) -> list[Unfinished]:
    """What the journal of a sidecar says, which may be running. Each store has a journal of its own below `state_dir`."""
    (path,) = state_dir.glob("*/journal.sqlite")
    columns = "segment_id, root, base_offset, end_offset, log_crc32c IS NOT NULL, commit_number"
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        rows = connection.execute(f"SELECT {columns} FROM attempts ORDER BY base_offset").fetchall()  # noqa: S608 - a constant
    return [Unfinished(*row[:4], bool(row[4]), row[5]) for row in rows]


def commits_of(store: ObjectStore, root: ObjectKey) -> Iterator[Commit]:
    """All commits of a lineage in their order."""
    for key in sorted(facts.key for facts in store.list(below(root, COMMITS))):
        yield decode_commit(store.read(key), key)


def wait_until_archived(archived: Archived, partition_count: int) -> None:
    """Until something of so many partitions is in the archive."""
    wait_until("all partitions are being archived", lambda: len(archived.look()) == partition_count, FOLLOW_TIMEOUT_S)


def assert_whole(
    brokers: Sequence[KafkaBroker],
    sidecars: Sequence[tuple[Daemon, Path]],
    store: ObjectStore,
    archived: Archived,
    topics: Sequence[str],
    scratch: Path,
) -> Counter[str]:
    """Wait until all that has rolled is archived, end the sidecars, and compare everything. Nobody may write any more.

    Args:
        sidecars: each with its state directory.

    Returns counts: of what was compared, and of what the sidecars said.
    """
    producers = remembered_at_rest(brokers, topics)
    bases = active_bases(brokers, topics)

    def has_followed() -> bool:
        return archived.look().keys() >= bases.keys() and all(
            (archived.states[partition].end_offset or 0) >= base for partition, (_, base) in bases.items()
        )

    try:
        wait_until("everything that has rolled is archived", has_followed, FOLLOW_TIMEOUT_S)
    except TimeoutError as error:
        raise AssertionError(f"{error}:\n{_behind(bases, archived, sidecars, brokers)}") from None
    assert [sidecar.process.stop() for sidecar, _ in sidecars] == [0] * len(sidecars)
    archived.look()
    counts = reported([sidecar for sidecar, _ in sidecars])
    with Oracle() as oracle:
        for partition, (directory, _) in bases.items():
            state = archived.states[partition]
            known = None if producers is None else producers[partition]
            counts.update(assert_equals_the_leader(store, state, directory, known, scratch, oracle))
    state_dirs = [state_dir for _, state_dir in sidecars]
    counts["orphans_known_to_a_journal"] = assert_nothing_uncounted(store, archived.states.values(), state_dirs)
    return counts


def _behind(
    bases: Mapping[TopicPartition, tuple[Path, int]],
    archived: Archived,
    sidecars: Sequence[tuple[Daemon, Path]],
    brokers: Sequence[KafkaBroker],
) -> str:
    """What waits, and for what: a line for each partition behind, with the last stable offset and what each sidecar says."""
    asked = next(broker for broker in brokers if broker.process.alive)
    rows = [sidecar.partitions() for sidecar, _ in sidecars]
    lines: list[str] = []
    for partition, (_, base) in bases.items():
        state = archived.states.get(partition)
        end = (state.end_offset or 0) if state else 0
        if end < base:
            stable = end_offset(asked, partition.topic, partition.partition, committed=True)
            reported_by = [found.get(str(partition)) for found in rows]
            lines.append(
                f"{partition}: archived to {end}, active segment from {base}, stable to {stable}: {reported_by}"
            )
    waiting = [unfinished for _, state_dir in sidecars for unfinished in unfinished_attempts(state_dir)]
    newest = [line for sidecar, _ in sidecars for line in sidecar.process.output().splitlines()[-40:]]
    return "\n".join([*lines, f"in the journals: {waiting}", *newest])


def assert_equals_the_leader(
    store: ObjectStore,
    state: PartitionState,
    directory: Path,
    known: set[LiveProducer] | None,
    scratch: Path,
    oracle: Oracle,
) -> Counter[str]:
    """No hole, no overlap, each offset once; every byte is the leader's; every snapshot is what Kafka's own replay gives.

    The last one, and the batches behind it, lead to the producers that the leader has in its memory.

    Args:
        directory: the leader's partition directory. Nothing may have been deleted from it.
        known: the leader's producers now; None where it does not tell.

    Returns counts: segments, bytes, snapshots and producers that are equal, and commits by nobody but the leaders of their time.
    """
    counts: Counter[str] = Counter()
    spans = ranges(state)
    assert spans[0][0] == 0
    assert all(before[1] == after[0] for before, after in pairwise(spans)), spans
    assert state.holes == ()
    found = verify_partition(store, ObjectKey(state.lineage.root), SystemClock(), deep=True)
    assert found.problems == ()
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    assert bases[0] == 0
    assert spans[-1][1] >= bases[-1], f"{directory.name}: the archive ends below the leader's active segment"
    counts["segments_at_other_boundaries"] = len(set(spans) - set(pairwise(bases)))
    leader = b"".join((directory / f"{base:020d}.log").read_bytes() for base in bases)
    copy = scratch / directory.name
    copy.mkdir(parents=True)
    snapshots: dict[int, bytes] = {}
    position = 0
    for segment in state.segments:
        parts = parts_of(store, state.lineage.root, segment)
        log = parts[PartName.LOG]
        assert log == leader[position : position + len(log)], (
            f"{directory.name}: [{segment.base_offset}, {segment.end_offset})"
        )
        position += len(log)
        (copy / f"{segment.base_offset:020d}.log").write_bytes(log)
        snapshots[segment.end_offset] = parts[PartName.PRODUCER_SNAPSHOT]
    assert _known({end: read_snapshot(content) for end, content in snapshots.items()}) == _replayed(
        oracle, copy, scratch
    )
    counts["segments"], counts["bytes"], counts["snapshots_equal"] = len(spans), position, len(snapshots)
    if known is not None:
        end = spans[-1][1]
        assert producers_behind(snapshots[end], end, position, directory) == known, directory.name
        counts["producers_equal"] = len(known)
    counts.update(assert_no_commit_of_a_deposed_leader(store, ObjectKey(state.lineage.root)))
    return counts


def assert_no_commit_of_a_deposed_leader(store: ObjectStore, root: ObjectKey) -> Counter[str]:
    """After the first commit of a leader none of an earlier leader follows."""
    commits = list(commits_of(store, root))
    epochs = [commit.writer.leader_epoch for commit in commits]
    assert epochs == sorted(epochs), f"{root}: leader epochs of the commits: {epochs}"
    added = [action.segment.segment_id for commit in commits for action in commit.actions if isinstance(action, Add)]
    assert len(added) == len(set(added))
    writers = {(commit.writer.leader_epoch, commit.writer.broker_id) for commit in commits}
    assert len({epoch for epoch, _ in writers}) == len(writers), (
        f"{root}: two brokers committed in one epoch: {writers}"
    )
    return Counter(commits=len(commits), leaderships_that_committed=len(writers))


def assert_nothing_uncounted(store: ObjectStore, states: Iterable[PartitionState], state_dirs: Iterable[Path]) -> int:
    """Every object that no commit names stands in the journal of a sidecar, which will remove it; how many there are."""
    known = {attempt.segment_id for state_dir in state_dirs for attempt in unfinished_attempts(state_dir)}
    orphans = [
        orphan.key
        for state in states
        for orphan in verify_partition(store, ObjectKey(state.lineage.root), SystemClock()).orphans
    ]
    assert [key for key in orphans if not any(segment_id in key for segment_id in known)] == []
    return len(orphans)


def _replayed(oracle: Oracle, copy: Path, scratch: Path) -> dict[int, list[ProducerEntry]]:
    out = scratch / "replayed" / copy.name
    out.mkdir(parents=True)
    replay = oracle.snapshots(copy, out)
    assert replay.stopped is None
    written = {boundary.offset: out / f"{boundary.offset:020d}.snapshot" for boundary in replay.boundaries}
    return _known({offset: read_snapshot(path.read_bytes()) for offset, path in written.items()})


def _known(snapshots: dict[int, tuple[ProducerEntry, ...]]) -> dict[int, list[ProducerEntry]]:
    """Without entries of which nothing is known: a broker's next expiry check removes those."""
    return {
        offset: [entry for entry in entries if entry != ProducerEntry(entry.producer_id)]
        for offset, entries in snapshots.items()
    }
