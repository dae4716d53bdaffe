"""Where a compacted directory is made: beside the place that it will have, which must be free and no broker's."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sidecar.errors import SettingsError
from sidecar.logformat.names import META_PROPERTIES
from sidecar.model import PartitionFiles
from sidecar.pipeline.compaction.output_files import cannot_be_written
from sidecar.spark.scratch import Scratch


@contextmanager
def workplace(files: PartitionFiles, out: Path | None) -> Iterator[Path]:
    """A directory that is gone afterwards, on the file system of `out`; None: anywhere. A killed process's goes with the next.

    Raises SettingsError for an `out` that cannot be, StagingFull where nothing can be written there.
    """
    if out is not None:
        _require_free(files, out)
    with work_directory("compact", None if out is None else out.parent) as directory:
        yield directory


@contextmanager
def work_directory(kind: str, above: Path | None = None) -> Iterator[Path]:
    """A directory for a command's work files, gone afterwards; a killed process's goes with the next one made there.

    Args:
        kind: see `Scratch`.
        above: where to make it; None: where temporary files go.

    Raises StagingFull where none can be made.
    """
    with cannot_be_written(Path(tempfile.gettempdir()) if above is None else above):
        scratch = Scratch(above, kind)
    with scratch as directory:
        yield directory


def _require_free(files: PartitionFiles, out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SettingsError(f"--out {out} is not empty: name a directory that does not exist yet")
    if out.resolve().is_relative_to(files.directory.resolve()):
        raise SettingsError(f"--out {out} lies in {files.directory}: a broker's files are never written to")
    if (out.parent / META_PROPERTIES).exists():
        raise SettingsError(
            f"--out {out} lies in a broker's log directory: write elsewhere, and move it there while the broker is stopped"
        )
