"""`verify --deep` of every archive that a test leaves behind: in memory, and in files below its temporary directories.

A test that leaves damage on purpose says so, and then it must be there: `@pytest.mark.leaves_damage("missing_object")`, or the
fixture `expect_damage` where it depends. A commit log without any object of a segment is no archive.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from crc32c import crc32c

from sidecar.archive.keys import COMMITS, SEGMENTS, below, is_incarnation_folder, is_partition_folder
from sidecar.errors import StoreError
from sidecar.model import ObjectKey
from sidecar.ports import ObjectStore
from sidecar.storage.directory_store import DirectoryStore
from sidecar.verify.segments import Check, Checked, Problem, check_segment_objects
from sidecar.verify.verify import verify_archive
from tests.fakes import memory_store
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.histories.one_thread import pools_in_this_thread

_KEPT_MAX = 64
"""Stores of one test that are verified at its end; of more, as of a property test, the oldest are as soon as there are others."""
_LINEAGE_DEPTH = 4
SHOWN_MAX = 10
_checked_before: set[tuple[object, ...]] = set()
"""Sound segments of this process, by their commit's words and by their bytes: many tests archive the same golden directories."""


@dataclass(frozen=True, slots=True)
class _KnownOnce:
    """`Checks` that read again only what no test before has left."""

    store: ObjectStore

    def __call__(self, checks: Sequence[Check]) -> Generator[Checked, None, None]:
        for check in checks:
            yield self._checked(check)

    def _checked(self, check: Check) -> Checked:
        segment = check.segment
        nameless = replace(segment, segment_id="", log_key=ObjectKey(""), indexes_key=ObjectKey(""), source_path=None)
        try:
            content = [self.store.read(below(check.root, key)) for key in (segment.log_key, segment.indexes_key)]
            identity = (repr(nameless), *((len(body), crc32c(body)) for body in content))
            if identity in _checked_before:
                return Checked()
        except StoreError:
            identity = ()
        found = check_segment_objects(self.store, check.root, segment, deep=True)
        if identity and not found.problems:
            _checked_before.add(identity)
        return found


def problems_of(store: ObjectStore) -> list[Problem]:
    """What a deep verification finds in a store. In files and in memory threads would take three times as much CPU."""
    with pools_in_this_thread():
        found = list(verify_archive(store, ManualClock(0), deep=True, checks=_KnownOnce(store)))
    return [problem for one in found for problem in one.problems]


def archives_below(directory: Path) -> Iterator[Path]:
    """Roots of archives: four levels above `commits/` and `segments/`.

    A server that keeps each object in a directory, as MinIO does, has none in its files.
    """
    roots = set()
    for segments in directory.rglob(SEGMENTS.rstrip("/")):
        lineage = segments.parent
        if (
            (lineage / COMMITS).is_dir()
            and not any(commit.is_dir() for commit in (lineage / COMMITS).iterdir())
            and is_incarnation_folder(lineage.name)
            and is_partition_folder(lineage.parent.name)
        ):
            roots.add(lineage.parents[_LINEAGE_DEPTH - 1])
    yield from sorted(roots)


@dataclass
class LeftArchives:
    """What is to be verified at the end of one test."""

    stores: list[MemoryStore] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def made(self, store: MemoryStore) -> None:
        """A store has come into being."""
        self.stores.append(store)
        if len(self.stores) > _KEPT_MAX:
            self._verify(self.stores.pop(0))

    def require(self, declared: set[str], directories: Iterable[Path]) -> None:
        """Fail unless what is wrong is what was declared."""
        while self.stores:
            self._verify(self.stores.pop())
        for root in (root for directory in directories for root in archives_below(directory)):
            self.problems += problems_of(DirectoryStore(root))
        found = {str(problem.kind) for problem in self.problems}
        if found != declared:
            shown = "\n".join(f"{problem.kind} {problem.key}: {problem.what}" for problem in self.problems[:SHOWN_MAX])
            pytest.fail(
                f"archives that are left behind: verify --deep finds {sorted(found)}, declared are {sorted(declared)} "
                f"(@pytest.mark.leaves_damage or the fixture expect_damage)\n{shown}"
            )

    def _verify(self, store: MemoryStore) -> None:
        if not any(f"/{SEGMENTS}" in key for key in list(store.objects)):
            return
        with memory_store.unwatched():
            copy = MemoryStore()
        copy.objects = dict(store.objects)
        self.problems += problems_of(copy)
