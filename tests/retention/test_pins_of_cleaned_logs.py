"""The broker's cleaner replaces pinned segments, and retention deletes what it has left of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.retention.pinned_rig import held_names
from tests.retention.test_pinned_logs import led, listed, planned_and_held
from tests.runner.one_partition import planned
from tests.runner.rig import remove_offsets

FIRST = f"{0:020d}.log"


def _replace_first(directory: Path, suffix: str = "") -> int:
    """The cleaner writes another file with the same records. Returns its inode."""
    log = directory / FIRST
    other = shutil.copy2(log, directory / f"{FIRST}.cleaned")
    log.unlink()
    return other.rename(directory / f"{FIRST}{suffix}").stat().st_ino


@pytest.mark.parametrize("suffix", ["", ".swap"])
def test_a_pinned_segment_that_the_cleaner_replaced_is_archived_when_retention_takes_the_new_file(
    suffix: str, tmp_path: Path
) -> None:
    with led(tmp_path) as (log_dir, context, facts):
        archiver, files = planned_and_held(context, log_dir)
        _replace_first(files.directory, suffix)
        archiver.see(listed(log_dir), facts.partition(files))
        assert held_names(context)[:2] == [0, 140]
        assert archiver.pinned.gone == ()
        (files.directory / f"{FIRST}{suffix}").unlink()
        remove_offsets(files.directory, lambda offset: offset >= 248)
        facts.cluster_start_offset = 248
        plan = planned(context, archiver, listed(log_dir))
        assert [segment.base_offset for segment in plan.segments][:4] == [0, 140, 248, 362]


def test_the_pin_goes_when_the_new_file_is_pinned(tmp_path: Path) -> None:
    with led(tmp_path) as (log_dir, context, _facts):
        archiver, files = planned_and_held(context, log_dir)
        inode = _replace_first(files.directory)
        plan = planned(context, archiver, listed(log_dir))
        archiver.pinned.planned(plan, beyond_limit={plan.segments[0].log})
        assert archiver.pinned.logs[0].inode != inode
        assert not archiver.pinned.is_outdated
        context.pinned.keep([*archiver.pinned.logs, plan.segments[0].log])
        archiver.pinned.planned(plan)
        assert [log.inode for log in archiver.pinned.logs if log.name == FIRST] == [inode]
        assert sorted(file.inode for file in context.pinned._pinned if file.name == FIRST) == [inode]
