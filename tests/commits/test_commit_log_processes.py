"""Processes that race for the same commit log in a directory: each range is archived once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sidecar.clock import SystemClock
from sidecar.commits.commit_log import CommitLog
from sidecar.storage.directory_store import DirectoryStore
from tests.archive.builders import LINEAGE

WRITER_PROGRAM = """
import sys
from pathlib import Path
from sidecar.archive.actions import Add
from sidecar.archive.commit import Writer
from sidecar.clock import SystemClock
from sidecar.commits import commit_log
from sidecar.commits.commit_log import CommitConflict, CommitLog
from sidecar.storage.directory_store import DirectoryStore
from tests.archive.builders import LINEAGE, a_segment

name, step, end = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
commit_log.CHECKPOINT_EVERY = 10
log = CommitLog(DirectoryStore(Path(sys.argv[1])), LINEAGE.root, SystemClock())
state = log.read()
print("ready", flush=True)
sys.stdin.readline()
while (base := state.end_offset or 0) < end:
    segment = a_segment(base, min(base + step, end), (name, state.next_number))
    try:
        state = log.append([Add(segment)], Writer(1, 0, name), state)
        print(segment.segment_id, flush=True)
    except CommitConflict as conflict:
        state = conflict.state
"""


def test_racing_processes_archive_each_range_once(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER_PROGRAM, str(tmp_path), name, step, "3000"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for name, step in (("a", "30"), ("b", "50"), ("c", "70"))
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    outputs = [writer.communicate(timeout=300)[0].split() for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    state = CommitLog(DirectoryStore(tmp_path), LINEAGE.root, SystemClock()).read_whole_chain()
    assert state.end_offset == 3000
    confirmed = [segment_id for output in outputs for segment_id in output]
    assert sorted(confirmed) == sorted(segment.segment_id for segment in state.segments)
