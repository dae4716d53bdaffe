"""Where compactions have their work files: made when it is needed, and no reason to stop for who needs none."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from sidecar.pipeline.compaction.output_files import cannot_be_written
from sidecar.spark.scratch import Scratch


class WorkFiles:
    """A context manager around a directory that is there from the first time it is asked for.

    It is locked: what a killed process left is removed by the next one that has work files at the same place.
    """

    def __init__(self, place: Path, kind: str) -> None:
        """Args: place: made if need be; kind: what they are for, "compaction" or "copies"."""
        self._place = place
        self._kind = kind
        self._scratch: Scratch | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._scratch is not None:
            self._scratch.remove()

    def directory(self) -> Path:
        """The same one each time, anew where somebody has cleared it away. Raises StagingFull."""
        if self._scratch is not None and not self._scratch.path.is_dir():
            self._scratch.remove()
            self._scratch = None
        if self._scratch is None:
            with cannot_be_written(self._place):
                self._scratch = Scratch(self._place, self._kind)
        return self._scratch.path
