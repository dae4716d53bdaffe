"""Directories of work files: gone with their process, also with one that is killed, and nobody else's are touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar.spark.scratch import Scratch

ROOT = Path(__file__).parents[2]

HOLDERS = {
    "compact": """
from sidecar.spark.scratch import Scratch
held = Scratch(None, "compact")
held.__enter__().joinpath("parts").mkdir()
""",
    "inspect": """
from sidecar.spark.scratch import Scratch
held = Scratch(None, "inspect")
held.__enter__().joinpath("0.log").write_bytes(b"a copy")
""",
}


def killed_while_holding(program: str, temporary: Path) -> None:
    """Run it with its own place for temporary files, and end it by SIGKILL once it holds what it asked for."""
    process = subprocess.Popen(
        [sys.executable, "-c", f"{program}\nprint('held', flush=True)\nimport time; time.sleep(600)"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize("kind", HOLDERS)
def test_what_a_killed_command_left_is_removed_by_the_next(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = tmp_path / "tiered-sidecar-notes"
    foreign.mkdir()
    killed_while_holding(HOLDERS[kind], tmp_path)
    (left,) = tmp_path.glob(f"tiered-sidecar-{kind}-*")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Scratch(None, "compact") as mine, Scratch(None, "dry-run") as another:
        assert not left.exists()
        # Those in use stay, whoever else makes one.
        assert mine.is_dir()
        assert another.is_dir()
    assert list(tmp_path.iterdir()) == [foreign]


def test_a_killed_forecast_leaves_nothing(tmp_path: Path) -> None:
    program = """
from sidecar.compaction.rules import CompactionRules
from sidecar.logformat.bodies.record import Record
from sidecar.rewriting.what_if import OtherWinners
held = OtherWinners(CompactionRules(0))
held.put(Record(0, key=b"key"), wins=True)
"""
    killed_while_holding(program, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_one_in_use_by_another_process_stays(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from sidecar.spark.scratch import sweep; sweep(Path(sys.argv[1]))"
    with Scratch(tmp_path, "copies") as mine:
        subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, check=True)
        assert mine.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_what_was_killed_while_it_removed_its_own_goes_too_unless_it_holds_something(tmp_path: Path) -> None:
    empty, full = tmp_path / "tiered-sidecar-compact-20261121", tmp_path / "tiered-sidecar-compact-20261122"
    empty.mkdir()
    full.mkdir()
    (full / "notes.txt").write_text("somebody's")
    with Scratch(tmp_path, "copies"):
        assert not empty.exists()
    assert list(tmp_path.iterdir()) == [full]


def test_a_kind_that_no_sweep_would_find_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="notes: expected one of spark"):
        Scratch(tmp_path, "notes")
