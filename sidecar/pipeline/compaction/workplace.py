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


@contextmanager
def workplace(files: PartitionFiles, out: Path | None) -> Iterator[Path]:
    """A directory that is gone afterwards, on the file system of `out`; None: anywhere.

    Raises SettingsError for an `out` that cannot be, StagingFull where nothing can be written there.
    """
    if out is None:
        with tempfile.TemporaryDirectory(prefix="tiered-sidecar-compact-") as name:
            yield Path(name)
        return
    _require_free(files, out)
    with cannot_be_written(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=f".{out.name}-", suffix=".tmp", dir=out.parent)
    with scratch as name:
        yield Path(name)


def _require_free(files: PartitionFiles, out: Path) -> None:
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SettingsError(f"--out {out} is not empty: name a directory that does not exist yet")
    if out.resolve().is_relative_to(files.directory.resolve()):
        raise SettingsError(f"--out {out} lies in {files.directory}: a broker's files are never written to")
    if (out.parent / META_PROPERTIES).exists():
        raise SettingsError(
            f"--out {out} lies in a broker's log directory: write elsewhere, and move it there while the broker is stopped"
        )
