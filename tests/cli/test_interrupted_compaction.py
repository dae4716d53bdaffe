"""What `compact` says when a signal ends it."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from sidecar.cli.compact import archive_compaction, directory_compaction
from tests.cli.running import in_this_process
from tests.cli.test_compaction_rules import Site, partition_directory


def end(*_arguments: object, **_named: object) -> NoReturn:
    """As the first SIGTERM does."""
    raise SystemExit(143)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "partitions without a new commit are unchanged. `tiered-sidecar status` shows in `compacted` which are"),
        (["--dry-run"], "nothing was changed"),
    ],
)
def test_of_an_archive(options: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)
    monkeypatch.setattr(archive_compaction, "_show", end)
    found = site.compact(*options)
    assert found.code == 143
    assert found.err.splitlines()[-1].startswith(f"interrupted: {says}")


def test_of_an_undo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(tmp_path)
    monkeypatch.setattr(archive_compaction, "undo_archive", end)
    found = in_this_process("compact", "--archive", site.archive, "--topic", "hdr", "--undo")
    assert found.code == 143
    assert found.err.splitlines()[-1].startswith("interrupted: partitions without a new commit are unchanged.")


def test_of_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, out = partition_directory(tmp_path), tmp_path / "out"
    monkeypatch.setattr(directory_compaction, "compact_directory", end)
    for options, says in (
        (["--out", out], f"{out} is either complete or as it was before"),
        (["--dry-run"], "nothing was changed"),
    ):
        found = in_this_process("compact", directory, "--engine", "local", *options)
        assert found.code == 143
        assert found.err.splitlines()[-1] == f"interrupted: {says}"
