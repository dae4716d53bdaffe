"""Tasks in this process and in a pool of others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sidecar.host import limits
from sidecar.host.limits import workers_that_fit
from sidecar.ports import MIB
from sidecar.snapshots import local_engine
from sidecar.snapshots.local_engine import LocalEngine, WorkerDied


def dies(_task: int) -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def doubled(task: int) -> bytes:
    return bytes([2 * task])


def test_a_worker_that_is_killed_is_an_error_that_says_why() -> None:
    with pytest.raises(WorkerDied, match="lack of memory"):
        list(LocalEngine(2, alone_s=0.0).run(dies, [1, 2, 3]))


def test_answers_come_in_the_order_of_the_tasks() -> None:
    for alone_s in (0.0, 60.0):
        engine = LocalEngine(2, alone_s=alone_s)
        assert list(engine.run(doubled, range(100))) == [bytes([2 * task]) for task in range(100)]


def where(_task: int) -> bytes:
    time.sleep(0.02)  # noqa: TID251 - work that takes its time
    return str(os.getpid()).encode()


def test_a_pool_is_started_only_for_work_that_lasts() -> None:
    here = str(os.getpid()).encode()
    alone = list(LocalEngine(2, alone_s=60.0).run(where, range(5)))
    helped = list(LocalEngine(2, alone_s=0.05).run(where, range(20)))
    assert set(alone) == {here}
    assert helped[0] == here
    assert here not in helped[-10:]


@pytest.mark.parametrize(
    ("cores", "limit_mib", "workers"), [(64, None, 64), (64, 512, 8), (4, 512, 4), (64, 4096, 64), (64, 200, 1)]
)
def test_a_small_container_on_a_large_node_gets_no_more_workers_than_fit(
    cores: int, limit_mib: int | None, workers: int
) -> None:
    assert workers_that_fit(cores, None if limit_mib is None else limit_mib * MIB, 32 * MIB) == workers


def test_where_only_one_worker_fits_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text(f"{300 * MIB}\n")
    monkeypatch.setattr(limits, "MEMORY_FILES", (limit,))
    monkeypatch.setattr(local_engine, "processors", lambda: 64)
    assert set(LocalEngine(alone_s=0.0).run(where, range(5))) == {str(os.getpid()).encode()}


PROGRAM = """
from sidecar.snapshots.local_engine import LocalEngine
from tests.snapshots.test_local_engine import waits
list(LocalEngine(2, alone_s=0.0).run(waits, [1]))
"""


def waits(_task: int) -> bytes:
    sys.stdout.write("started\n")
    sys.stdout.flush()
    signal.pause()
    return b""


def test_no_process_outlives_a_parent_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"started\n"
            process.kill()
            # The pipe ends when the last process that has it is gone.
            assert process.communicate(timeout=60)[0] == b""
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
