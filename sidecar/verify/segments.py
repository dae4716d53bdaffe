"""Are a segment's objects in the store what its commit says? Shallow: sizes, checksums, small parts. Deep: every byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from sidecar.archive.bundle import cut_part, indexes_size_bytes, log_size_bytes
from sidecar.archive.keys import below
from sidecar.errors import CorruptFile, ObjectMissing, SegmentChanged
from sidecar.model import ArchivedSegment, ObjectKey, PartName
from sidecar.ports import ObjectStore
from sidecar.segment.log_check import ExpectedLog, check_log, unreadable_parts


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


def check_segment_objects(
    store: ObjectStore, root: str, segment: ArchivedSegment, *, deep: bool
) -> tuple[Problem, ...]:
    """All that is wrong with a committed segment's two objects. Raises StoreError where the store itself fails."""
    parts, wrong_parts = _check_indexes(store, root, segment, deep=deep)
    return (*_check_log(store, root, segment, parts, deep=deep), *wrong_parts)


def _check_log(
    store: ObjectStore, root: str, segment: ArchivedSegment, parts: Mapping[PartName, bytes], *, deep: bool
) -> Iterator[Problem]:
    key = below(root, segment.log_key)
    size_bytes = log_size_bytes(segment)
    problem = _check_head(store, key, size_bytes, next(part.crc32c for part in segment.parts))
    if problem:
        yield problem
    elif deep:
        try:
            yield from _read_log(store, key, segment, parts, below(root, segment.indexes_key))
        except ObjectMissing:
            yield Problem(ProblemKind.MISSING_OBJECT, key, "vanished while it was read")


def _check_head(store: ObjectStore, key: ObjectKey, size_bytes: int, checksum: int | None) -> Problem | None:
    facts = store.head(key)
    if facts is None:
        return Problem(ProblemKind.MISSING_OBJECT, key, "committed, but not in the store")
    if facts.size_bytes != size_bytes:
        return Problem(
            ProblemKind.SIZE_MISMATCH, key, f"has {facts.size_bytes} bytes in the store, committed were {size_bytes}"
        )
    if checksum is not None and facts.crc32c not in {None, checksum}:
        return _checksum_problem(key, facts.crc32c or 0, checksum, "by the store's own account")
    return None


def _checksum_problem(key: str, found: int, committed: int, how: str) -> Problem:
    return Problem(ProblemKind.CHECKSUM_MISMATCH, key, f"has CRC-32C {found:08x} {how}, committed was {committed:08x}")


def _read_log(
    store: ObjectStore, key: ObjectKey, segment: ArchivedSegment, parts: Mapping[PartName, bytes], indexes_key: str
) -> Iterator[Problem]:
    """Every byte once: the checksum of the object, every batch in it, and the indexes that are readable."""

    def read_at(position: int, buffer: memoryview) -> int:
        data = store.read(key, position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    try:
        checksum, problem = check_log(
            read_at,
            log_size_bytes(segment),
            ExpectedLog.of_commit(segment),
            parts,
            file=key,
            indexes_file=indexes_key,
        )
    except SegmentChanged as error:
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
    if problem := _check_head(store, key, size_bytes, None):
        return {}, [problem]
    try:
        data = store.read(key, 0, size_bytes)
    except ObjectMissing:
        return {}, [Problem(ProblemKind.MISSING_OBJECT, key, "vanished while it was read")]
    parts: dict[PartName, bytes] = {}
    problems: list[Problem] = []
    for part in segment.parts[1:]:
        try:
            parts[part.name] = cut_part(data, part, key)
        except CorruptFile as error:
            problems.append(Problem(ProblemKind.CHECKSUM_MISMATCH, key, error.what))
    for name, reason in list(unreadable_parts(parts, segment.base_offset)) if deep else ():
        del parts[name]
        problems.append(Problem(ProblemKind.CORRUPT_CONTENT, key, f"part {name}: {reason}"))
    return parts, problems
