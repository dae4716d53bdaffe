"""Whether losses are reported that no commit can record: what went of a log before anything of it was archived."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from sidecar.host.pinned_files import PinnedFiles
from sidecar.model import ObjectKey
from tests.simulation.cluster import Partition
from tests.simulation.findings import Finding
from tests.simulation.invariants import Checker
from tests.simulation.processes import Sidecar

_Log: TypeAlias = tuple[int, ObjectKey]
"""A broker, and the root of the lineage that its log belongs to."""


@dataclass(slots=True)
class UnrecordedLosses:
    """What a process of the leader's sidecar has seen to go in one term, while the archive was empty.

    `_first`: by log, the pins of the process, the term, and where the log began at the last check. `_gone`: offsets that are to
    be reported, by a later process too.
    """

    _first: dict[_Log, tuple[tuple[PinnedFiles, int, tuple[int, int]], int]] = field(default_factory=dict)
    _gone: dict[_Log, set[int]] = field(default_factory=dict)

    def forget(self, broker: int) -> None:
        """Its sidecar has lost its volume."""
        self._first = {log: found for log, found in self._first.items() if log[0] != broker}
        self._gone = {log: found for log, found in self._gone.items() if log[0] != broker}

    def see(self, sidecar: Sidecar, cluster: Partition, checker: Checker) -> None:
        """After a round of a sidecar in which nothing happened to the log."""
        files, log = cluster.led.files(), (sidecar.number, checker.root)
        first_offset, start_offset = files.first_offset or 0, cluster.led.log_start_offset
        if checker.state is not None:
            self._first.pop(log, None)
            return
        if cluster.leader != sidecar.number or files.unstable:
            return
        term = sidecar.pinned, cluster.leader_epoch, files.directory_id
        known_term, known_offset = self._first.get(log, (None, 0))
        if known_term == term and start_offset == first_offset > known_offset:
            # Only what was deleted on purpose before is no loss.
            begin = max(known_offset, cluster.truth.deleted_before_offset)
            self._gone.setdefault(log, set()).update(range(begin, first_offset))
        self._first[log] = term, max(first_offset, start_offset)

    def require_reported(self, broker: int, checker: Checker, reported: Iterable[tuple[int, int]]) -> None:
        """At the end, of a partition that this broker leads. Raises Finding. `reported`: from the first offset to the last."""
        state, missing = checker.state, set(self._gone.get((broker, checker.root), ()))
        if state is None or not missing:
            return
        spans = list(reported)
        spans += [(found.base_offset, found.end_offset) for found in (*state.segments, *state.holes)]
        for begin, end in spans:
            missing.difference_update(range(begin, end))
        if missing:
            raise Finding("loss-not-reported", f"{checker.root}, broker {broker}: {sorted(missing)}")
