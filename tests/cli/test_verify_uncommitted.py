"""`verify` of partitions whose segments were uploaded and never committed, or whose commits are gone."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.cli.running import in_this_process
from tests.golden import golden

SETTLED = ("--set", "broker.settle_ms=0", "--set", "broker.snapshot_grace_ms=0")


@pytest.mark.parametrize(("age_s", "code"), [(0, 0), (3600, 1)])
def test_a_partition_without_commits_is_not_sound(age_s: int, code: int, tmp_path: Path) -> None:
    """Uploads of an hour ago are not under way any more: the commits are missing, or somebody gave up."""
    archive = tmp_path / "archive"
    places = ["--archive", archive, "--state-dir", tmp_path / "state", "--log-dir", golden("4.3.0") / "logs"]
    assert in_this_process("backfill", *places, "--assume-leader", "--topic", "orders", *SETTLED).code == 0
    verify = ("verify", "--archive", archive)
    before = in_this_process(*verify)
    assert (before.code, before.out.count("sound")) == (0, 2)
    (commits,) = archive.glob("*/orders/0/*/commits")
    for kind in ("commits", "checkpoints"):
        shutil.rmtree(commits.with_name(kind), ignore_errors=True)
    for path in commits.with_name("segments").iterdir():
        then_s = path.stat().st_mtime - age_s
        os.utime(path, (then_s, then_s))
    after = in_this_process(*verify)
    assert (after.code, after.out.count("sound"), after.out.count("nothing committed")) == (code, 1, 1)
    assert ("its commits are missing" in after.err) == bool(code)
    assert in_this_process(*verify, "--json").code == code
