"""Compacts symbolic segments before their upload: in the place of `GroupCompactor`, with copies that lie in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest.mock import patch

from crc32c import crc32c

from sidecar.clock import Clock
from sidecar.compactor.archive.archived_log import LAST_MODIFIED
from sidecar.compactor.before_upload import BeforeUpload, CopyGroup, RolledGroup
from sidecar.compactor.topic_counts import RawReason
from sidecar.compactor.topic_rule import TopicRule, rules_of
from sidecar.errors import SegmentChanged, SidecarError
from sidecar.segment import bundle
from sidecar.segment.bundle import CompactedCopy
from tests.simulation import decision
from tests.simulation.batches import Batch, encode
from tests.simulation.decision import ends_of, kept_of, output_of, rule_for
from tests.simulation.disk import SimDisk
from tests.simulation.reading import built_from

FIRST_DESCRIPTOR: Final = 2_000_000
"""No descriptor of the operating system, nor of a broker's file."""


_NO_RULE: Final = TopicRule(None, "the settings do not name it")


def before_upload(clock: Clock, strategy: Callable[[], str | None], *, compacts: bool = True) -> BeforeUpload:
    """What waits in one process. Args: strategy: of the topic's configs, now. compacts: by its settings."""
    return BeforeUpload(
        decision.settings(), clock, rule_of=lambda _topic: rule_for(strategy()) if compacts else _NO_RULE
    )


# Where copies lie.


@dataclass(slots=True, eq=False)
class CopyFile:
    """A copy's file, and the path that the product has of it. `is_there`: it was not removed."""

    name: str
    number: int
    content: bytes
    is_there: bool = True

    def __str__(self) -> str:
        return self.name

    def unlink(self, missing_ok: bool = False) -> None:
        """See `Path`."""
        assert missing_ok
        self.is_there = False

    @property
    def parent(self) -> Any:
        """See `Path`. Directories take no part in this."""
        return SimpleNamespace(rmdir=lambda: None)


@dataclass(slots=True)
class OpenCopies:
    """Descriptors of copies, of all processes. It stands for `os`, and for the files of the operating system."""

    O_RDONLY = O_CLOEXEC = 0
    opened: dict[int, CopyFile] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: count(FIRST_DESCRIPTOR))

    def open(self, file: CopyFile, _flags: int) -> int:
        """See `os`."""
        if not file.is_there:
            raise FileNotFoundError(2, "No such file or directory")
        descriptor = next(self._numbers)
        self.opened[descriptor] = file
        return descriptor

    def fstat(self, descriptor: int) -> Any:
        """See `os`."""
        return SimpleNamespace(st_ino=self.opened[descriptor].number)

    def close(self, descriptor: int) -> None:
        """See `OpenFiles`."""
        del self.opened[descriptor]

    def source(self, descriptor: int, size_bytes: int, name: str) -> CopySource:
        """As `FileSource`."""
        assert len(self.opened[descriptor].content) == size_bytes
        return CopySource(self.opened[descriptor].content, size_bytes, name)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Copies are opened here, while this lasts."""
        with (
            patch.object(bundle, "os", self),
            patch.object(bundle, "FileSource", self.source),
            patch.object(bundle, "BrokerFiles", lambda: self),
        ):
            yield


@dataclass(slots=True)
class CopySource:
    """Implements `UploadSource`."""

    content: bytes
    size_bytes: int
    name: str

    def read_at(self, position: int, size_bytes: int) -> bytes:
        """See `UploadSource`."""
        return self.content[position : position + size_bytes]


# Who compacts.


@dataclass(slots=True)
class SimCompactor:
    """Of one process. `files`: of all copies that it made."""

    waiting: BeforeUpload
    disk: SimDisk
    clock: Clock
    numbers: Iterator[int]
    files: list[CopyFile] = field(default_factory=list)

    def cycle(self) -> None:
        """See `GroupCompactor`."""
        for group in self.waiting.take():
            try:
                self._compact(group)
            except SidecarError as error:
                self.waiting.goes_raw(group.segments, RawReason.COMPACTION_FAILED, str(error))

    def sweep(self) -> None:
        """All copies are gone, as where somebody clears the directory."""
        for file in self.files:
            file.is_there = False

    def _compact(self, group: RolledGroup) -> None:
        logs = [self.disk.batches_of(segment.log) for segment in group.segments]
        ends = ends_of(batch for log in logs for batch in log) | ends_of(self._behind(group))
        count_decided = 0
        for log in logs:
            if any(batch.transaction >= 0 and batch.transaction not in ends for batch in log):
                break
            count_decided += 1
        self.waiting.goes_raw(group.segments[count_decided:], RawReason.OPEN_TRANSACTION)
        segments, logs = group.segments[:count_decided], logs[:count_decided]
        if not segments:
            return
        rules = rules_of(group.policy, self.clock.now_ms())
        kept = kept_of([batch for log in logs for batch in log], ends, rules)
        outputs = [output_of(log, kept) for log in logs]
        if outputs == logs:
            self.waiting.unchanged(segments)
            return
        copies: list[CompactedCopy | None] = []
        for segment, log, output in zip(segments, logs, outputs, strict=True):
            if log == output:
                copies.append(None)
                continue
            content = encode(output)
            number = next(self.numbers)
            file = CopyFile(f"/copies/{number}.log", number, content)
            self.files.append(file)
            noted = {**rules.parameters, LAST_MODIFIED: str(segment.log.mtime_ns // 1_000_000)}
            built, strategy = built_from(output), str(rules.effective_strategy)
            copies.append(CompactedCopy(cast("Any", file), len(content), crc32c(content), built, strategy, noted))
        self.waiting.compacted(CopyGroup(segments, tuple(copies), group.policy))

    def _behind(self, group: RolledGroup) -> Iterator[Batch]:
        """What lies behind the group, below what is stable."""
        files, end_offset = group.files, group.segments[-1].end_offset
        logs = [segment.log for segment in files.segments if segment.base_offset >= end_offset]
        if files.active_log is not None:
            logs.append(files.active_log)
        for log in logs:
            try:
                found = self.disk.batches_of(log)
            except SegmentChanged:
                continue
            yield from (batch for batch in found if batch.end_offset <= group.stable_end_offset)
