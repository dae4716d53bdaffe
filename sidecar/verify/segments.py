"""Are a segment's objects in the store what its commit says? Shallow: sizes, checksums, small parts. Deep: every byte."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from sidecar.archive.bundle import cut_part, indexes_size_bytes, log_size_bytes
from sidecar.archive.keys import below
from sidecar.engine_ports import TaskEngine, grouped
from sidecar.errors import FROM_STORE, CorruptFile, ObjectFrozen, ObjectMissing, SegmentChanged
from sidecar.host.process_store import store_of
from sidecar.model import ArchivedSegment, ObjectKey, PartName
from sidecar.ports import MIB, ObjectFacts, ObjectStore
from sidecar.segment.archived_objects import note_damaged_answer, reader
from sidecar.store_settings import RetrySettings, StoreSettings

if TYPE_CHECKING:
    from sidecar.logformat.window import ReadAt

PRELOADED: Final = ("sidecar.verify.segments", "sidecar.segment.log_check", "sidecar.snapshots.preloaded")
"""What processes that check segments import before they are forked."""
_CHUNK_BYTES: Final = 2 * MIB
"""Of a log that is streamed. Smaller ones switch threads more often; larger ones leave the processor's cache before the check."""
bytes(31 * MIB)
"""Freed at once, and no page of it was touched. But glibc then keeps up to twice as much of what is freed later: else each segment
takes new pages for its chunks, a thousand page faults for 64 MiB. Source: M_MMAP_THRESHOLD in mallopt(3)."""
_TASK_BYTES: Final = 64 * MIB
_TASK_SEGMENTS: Final = 256


class ProblemKind(StrEnum):
    """What is wrong, for programs."""

    MISSING_OBJECT = "missing_object"
    SIZE_MISMATCH = "size_mismatch"
    CHECKSUM_MISMATCH = "checksum_mismatch"
    CORRUPT_CONTENT = "corrupt_content"
    COMMIT_LOG = "commit_log"
    CHECKPOINT = "checkpoint"
    COVERAGE = "coverage"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. `what` says what was expected, what was found, and where."""

    kind: ProblemKind
    key: str
    what: str


@dataclass(frozen=True, slots=True)
class Checked:
    """What is wrong with a segment; and why nothing else can be said about it, `retryable` if the store gave no answer.

    `size_only`: of its `.log` only the size was compared, because the store has no checksum of it.
    """

    problems: tuple[Problem, ...] = ()
    size_only: bool = False
    unread: str = ""
    retryable: bool = False


def check_segment_objects(store: ObjectStore, root: str, segment: ArchivedSegment, *, deep: bool) -> Checked:
    """All that is wrong with a committed segment's two objects. Raises StoreError where the store itself fails."""
    found = _check_once(store, root, segment, deep=deep)
    if not found.problems:
        return found
    again = _check_once(store, root, segment, deep=deep)  # The objects may be sound, and an answer was damaged.
    if not again.problems:
        note_damaged_answer(found.problems[0].key, found.problems[0].what)
    return again


def _check_once(store: ObjectStore, root: str, segment: ArchivedSegment, *, deep: bool) -> Checked:
    key = below(root, segment.log_key)
    facts = None if deep else store.head(key)
    wrong = [] if deep else list(_check_head(facts, key, segment))
    wrong_parts: list[Problem] = []
    try:
        parts, wrong_parts = _check_indexes(store, root, segment, deep=deep)
        if deep:
            wrong = _read_log(store, key, segment, parts, below(root, segment.indexes_key))
    except ObjectFrozen as error:
        if deep:
            wrong = list(_check_head(store.head(key), key, segment))  # The log was not asked for, or gave no answer.
        if not (wrong or wrong_parts):
            raise
        return Checked((*wrong, *wrong_parts), unread=str(error))
    if facts is None:
        return Checked((*wrong, *wrong_parts))
    unread = f"{key}: it is in {facts.frozen_in}; {ObjectFrozen.advice}" if facts.frozen_in else ""
    return Checked((*wrong, *wrong_parts), size_only=facts.crc32c is None, unread=unread)


def _check_head(facts: ObjectFacts | None, key: ObjectKey, segment: ArchivedSegment) -> Iterator[Problem]:
    size_bytes, checksum = log_size_bytes(segment), segment.parts[0].crc32c
    if facts is None:
        yield _missing(key)
    elif facts.size_bytes != size_bytes:
        yield _size_problem(key, str(facts.size_bytes), size_bytes)
    elif facts.crc32c not in {None, checksum}:
        yield _checksum_problem(key, facts.crc32c or 0, checksum, "as the store reports")


def _missing(key: str) -> Problem:
    return Problem(ProblemKind.MISSING_OBJECT, key, "committed, but not in the store")


def _size_problem(key: str, found: str, committed: int) -> Problem:
    return Problem(ProblemKind.SIZE_MISMATCH, key, f"has {found} bytes in the store, but the commit says {committed}")


def _checksum_problem(key: str, found: int, committed: int, how: str) -> Problem:
    return Problem(
        ProblemKind.CHECKSUM_MISMATCH, key, f"has CRC-32C {found:08x} {how}, but the commit says {committed:08x}"
    )


def _read_log(
    store: ObjectStore, key: ObjectKey, segment: ArchivedSegment, parts: Mapping[PartName, bytes], indexes_key: str
) -> list[Problem]:
    """Every byte once. What the store says of the object counts first: it may contradict the commit though the bytes do not."""
    contradictions: list[Problem] = []

    def note(facts: ObjectFacts) -> None:
        contradictions.extend(_check_head(facts, key, segment))

    chunks = store.stream(key, _CHUNK_BYTES, checked=False, on_facts=note)
    found = list(_check_chunks(chunks, reader(store, key, log_size_bytes(segment)), key, segment, parts, indexes_key))
    return contradictions or found


def _check_chunks(
    chunks: Iterator[bytes],
    again: ReadAt,
    key: ObjectKey,
    segment: ArchivedSegment,
    parts: Mapping[PartName, bytes],
    indexes_key: str,
) -> Iterator[Problem]:
    """The checksum of the object, every batch in it, and the indexes that are readable."""
    from sidecar.logformat.window import StreamedReads  # loads numpy
    from sidecar.segment.log_check import ExpectedLog, check_log

    try:
        with closing(StreamedReads(chunks, again)) as reads:
            checksum, problem = check_log(
                reads,
                log_size_bytes(segment),
                ExpectedLog.of_commit(segment),
                parts,
                file=key,
                indexes_file=indexes_key,
            )
    except ObjectMissing:
        yield _missing(key)
        return
    except (SegmentChanged, CorruptFile) as error:
        yield Problem(ProblemKind.SIZE_MISMATCH, key, str(error))
        return
    committed = segment.parts[0].crc32c
    if checksum != committed:
        yield _checksum_problem(key, checksum, committed, "when read")
    if problem is not None:
        yield Problem(ProblemKind.CORRUPT_CONTENT, problem.file or key, str(problem))


def _check_indexes(
    store: ObjectStore, root: str, segment: ArchivedSegment, *, deep: bool
) -> tuple[Mapping[PartName, bytes], list[Problem]]:
    """The parts that are as committed and, if `deep`, readable; and what is wrong with the others."""
    key = below(root, segment.indexes_key)
    size_bytes = indexes_size_bytes(segment)
    try:
        data = store.read(key, 0, size_bytes + 1)  # that byte shows a longer object, without a request for its size
    except ObjectMissing:
        return {}, [_missing(key)]
    if len(data) != size_bytes:
        return {}, [_size_problem(key, "more" if len(data) > size_bytes else str(len(data)), size_bytes)]
    parts: dict[PartName, bytes] = {}
    problems: list[Problem] = []
    for part in segment.parts[1:]:
        try:
            parts[part.name] = cut_part(data, part, key)
        except CorruptFile as error:
            problems.append(Problem(ProblemKind.CHECKSUM_MISMATCH, key, error.what))
    if deep:
        from sidecar.segment.log_check import unreadable_parts

        for name, reason in list(unreadable_parts(parts, segment.base_offset)):
            del parts[name]
            problems.append(Problem(ProblemKind.CORRUPT_CONTENT, key, f"part {name}: {reason}"))
    return parts, problems


@dataclass(frozen=True, slots=True)
class Check:
    root: str
    segment: ArchivedSegment


Checks: TypeAlias = Callable[[Sequence[Check]], Generator[Checked, None, None]]
"""Checks archived segments, and gives the findings in their order, as they come."""


def check_in_threads(
    store: ObjectStore, workers: int, checks: Sequence[Check], *, deep: bool
) -> Generator[Checked, None, None]:
    """In threads of this process: the store's answers are waited for, and the kernels release the GIL.

    If the store gave no answer about a segment, nothing can be said about its partition: the rest of it is not read any more.
    """
    silent: dict[str, Checked] = {}

    def checked(check: Check) -> Checked:
        found = silent.get(check.root) or _checked(store, check, deep=deep)
        if found.retryable:
            silent[check.root] = found
        return found

    with ThreadPoolExecutor(workers, thread_name_prefix="verify") as pool:
        yield from pool.map(checked, checks)


def scrub_on_engine(
    settings: StoreSettings, engine: TaskEngine, checks: Sequence[Check]
) -> Generator[Checked, None, None]:
    """Deep checks as tasks, each process with a store of its own. Raises what the engine raises."""
    groups = grouped(checks, lambda check: log_size_bytes(check.segment), _TASK_BYTES, _TASK_SEGMENTS)
    for answer in engine.run(partial(scrub, settings), list(groups)):
        yield from answer


_silent: set[StoreSettings] = set()
"""Stores that did not answer this process when it last asked."""
_ONE_ATTEMPT: Final = RetrySettings(attempts=1)


def scrub(settings: StoreSettings, checks: Sequence[Check]) -> list[Checked]:
    """What an engine runs: read these segments to the last byte.

    All attempts at a store that is gone take minutes. Once they have failed, the rest of the task is not read, and the next task
    of the process makes one.
    """
    found: list[Checked] = []
    for one in checks:
        checked = next((before for before in found if before.retryable), None)
        if checked is None:
            retry = _ONE_ATTEMPT if settings in _silent else settings.retry
            checked = _checked(store_of(settings.model_copy(update={"retry": retry})), one, deep=True)
            (_silent.add if checked.retryable else _silent.discard)(settings)
        found.append(checked)
    return found


def _checked(store: ObjectStore, check: Check, *, deep: bool) -> Checked:
    try:
        return check_segment_objects(store, check.root, check.segment, deep=deep)
    except FROM_STORE as error:
        return Checked(unread=str(error), retryable=error.retryable)
