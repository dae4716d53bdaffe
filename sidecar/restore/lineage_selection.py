"""The archived histories of the wanted partitions: those that can be read, those that cannot, and those that are not there."""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise

from sidecar.archive.keys import Lineage
from sidecar.archive.state import PartitionState
from sidecar.clock import Clock
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.lineages import find_all_lineages, has_commits, no_archive
from sidecar.errors import LineageUnknown, PartitionError, SettingsError
from sidecar.model import TopicPartition
from sidecar.ports import ObjectStore
from sidecar.reporting.advice import advised
from sidecar.restore.outcome import Unreadable
from sidecar.restore.plan import choose_lineage
from sidecar.restore.request import RestoreRequest
from sidecar.runner.topic_choice import TOPICS_SHOWN_MAX

READERS = 8
GAP_MAX = 10_000
NEAR_MAX = 3


@dataclass(frozen=True, slots=True)
class Histories:
    """`states`: of each partition the history that is meant, ascending. `unreadable`: partitions of which one that could be
    meant cannot be read, or several could be. `numbers`: every partition of which there is one, though it be without a segment.
    """

    states: tuple[PartitionState, ...]
    unreadable: tuple[Unreadable, ...]
    numbers: frozenset[int]

    def not_archived(self, known: Iterable[int]) -> list[int]:
        """The partitions that are missing between these, or among those that are known of elsewhere."""
        there = {state.lineage.topic_partition.partition for state in self.states}
        there |= {found.topic_partition.partition for found in self.unreadable}
        missing = {*self.numbers, *known} - there
        for before, number in pairwise((-1, *sorted(there | self.numbers))):
            # No topic has such a gap: the number above it is of a folder that no sidecar made.
            if number - before <= GAP_MAX:
                missing.update(range(before + 1, number))
        return sorted(missing)


def read_histories(store: ObjectStore, clock: Clock, request: RestoreRequest) -> Histories:
    """Read the commits of every wanted partition.

    One that cannot be read is reported, and does not stop the others. Raises SettingsError where a partition is not archived,
    LineageUnknown where several histories are and which is meant was not said (see `_chosen`), PartitionError where none can be
    read, StoreError.
    """
    wanted = set(request.partitions)
    lineages = [
        found
        for found in find_all_lineages(store, lambda topic: topic == request.topic)
        if request.cluster_id in {None, found.cluster_id} and request.incarnation in {None, found.incarnation}
        if not wanted or found.topic_partition.partition in wanted
    ]
    with ThreadPoolExecutor(READERS, thread_name_prefix="restore-plan") as pool:
        found = list(pool.map(lambda lineage: _read(store, clock, lineage), lineages))
    failed: dict[TopicPartition, tuple[Lineage, PartitionError]] = {}
    begun: dict[TopicPartition, list[PartitionState]] = {}
    for lineage, state in zip(lineages, found, strict=True):
        if isinstance(state, PartitionError):
            failed.setdefault(lineage.topic_partition, (lineage, state))
        elif state.segments:
            begun.setdefault(lineage.topic_partition, []).append(state)
    _require_all(store, request, {partition.partition for partition in {*begun, *failed}})
    # Where one of several cannot be read, another must not be taken for the one that is meant.
    readable = {partition: begun[partition] for partition in sorted(begun.keys() - failed.keys())}
    if not readable:
        raise failed[min(failed)][1]
    states, unclear = _chosen(readable, request)
    unread = [Unreadable(found, lineage.root, advised(error)) for found, (lineage, error) in failed.items()]
    return Histories(
        states=states,
        unreadable=tuple(sorted([*unread, *unclear], key=lambda found: found.topic_partition)),
        numbers=frozenset(lineage.topic_partition.partition for lineage in lineages),
    )


def _chosen(
    begun: Mapping[TopicPartition, Sequence[PartitionState]], request: RestoreRequest
) -> tuple[tuple[PartitionState, ...], list[Unreadable]]:
    """Of each partition the history that is meant, and those of which that is not clear while it is of the others.

    It is of the others only if they are of the topic that is wanted, by its id. To be the only one of its partition says nothing:
    where a topic was re-created with fewer partitions, the last ones have only the old topic's.

    Raises LineageUnknown where it is clear of none.
    """
    states: list[PartitionState] = []
    unclear: dict[TopicPartition, LineageUnknown] = {}
    for partition, found in begun.items():
        try:
            states.append(choose_lineage(found, request))
        except LineageUnknown as error:
            unclear[partition] = error
    wanted = request.wanted_topic_id
    are_wanted = bool(states) and wanted is not None and all(state.topic_id == wanted for state in states)
    if unclear and not are_wanted:
        raise unclear[min(unclear)]
    return tuple(states), [
        Unreadable(partition, "", f"{error}, with --partition {partition.partition}")
        for partition, error in unclear.items()
    ]


def _read(store: ObjectStore, clock: Clock, lineage: Lineage) -> PartitionState | PartitionError:
    try:
        return CommitLog(store, lineage.root, clock).read()
    except PartitionError as error:
        return error


def _require_all(store: ObjectStore, request: RestoreRequest, numbers: set[int]) -> None:
    missing = sorted(set(request.partitions) - numbers)
    if numbers and not missing:
        return
    if missing and numbers:
        raise SettingsError(
            f"{request.topic}: the archive at {store.url} has no partition {_joined(missing)}; `status` lists them"
        )
    every = require_archived(store, request.topic)
    if not has_commits(store, find_all_lineages(store)):
        raise no_archive(store)
    clusters = {f"cluster {found.cluster_id}, incarnation {found.incarnation}" for found in every}
    partitions = sorted({found.topic_partition.partition for found in every})
    raise SettingsError(
        f"topic {request.topic}: the archive at {store.url} has no match for "
        f"{_flags(request) or 'it: no segment yet'}. It has: {_joined(sorted(clusters))}, partitions "
        f"{_joined(partitions)}"
    )


def require_archived(store: ObjectStore, topic: str) -> tuple[Lineage, ...]:
    """The topic's histories.

    Raises SettingsError, with the names that come nearest, if the archive has no such topic; SidecarError if it has none.
    """
    if every := find_all_lineages(store, lambda name: name == topic):
        return every
    topics = sorted({found.topic_partition.topic for found in find_all_lineages(store)})
    if not topics:
        raise no_archive(store)
    near = get_close_matches(topic, topics, n=NEAR_MAX)
    more = f" and {len(topics) - TOPICS_SHOWN_MAX} more" if len(topics) > TOPICS_SHOWN_MAX else ""
    there = f"there are: {_joined(topics[:TOPICS_SHOWN_MAX])}{more}"
    advice = f"did you mean {' or '.join(near)}?" if near else there
    raise SettingsError(f"the archive at {store.url} has no topic {topic}; {advice}")


def _flags(request: RestoreRequest) -> str:
    given = [f"--partition {number}" for number in request.partitions]
    given += [f"--cluster-id {request.cluster_id}"] if request.cluster_id else []
    given += [f"--incarnation {request.incarnation}"] if request.incarnation else []
    return " ".join(given)


def _joined(names: Sequence[object]) -> str:
    return ", ".join(map(str, names))
