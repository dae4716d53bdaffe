"""Where compactions of `run` happen: handed in from above, so that nothing on the road of `run` knows a JVM."""

from __future__ import annotations

from typing import Protocol

from sidecar.engine_ports import StageEngine
from sidecar.pipeline.compaction.local_stages import LocalStages


class CompactionEngines(Protocol):
    """Engines by the size of the work. What they hold is gone after `stop`, and comes back with the next use."""

    def for_bytes(self, size_bytes: int, *, local_files: bool = False) -> StageEngine:
        """An engine for so many bytes. Starts nothing yet. `local_files`: the work is on files of this machine."""
        ...

    def stop(self) -> None:
        """End what they hold, now; whoever still waits for it gets an error."""
        ...


class LocalEngines:
    """This process does it all."""

    def for_bytes(self, size_bytes: int, *, local_files: bool = False) -> StageEngine:
        """See `CompactionEngines`."""
        return LocalStages()

    def stop(self) -> None:
        """Nothing is held. Work of this process cannot be ended from outside: it must be small."""
