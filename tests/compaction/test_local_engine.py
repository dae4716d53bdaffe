"""Stages on several threads, with rows that wait in a file: the same result as on one thread, with all in memory."""

from __future__ import annotations

import os
import signal
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sidecar.compaction.key_table import Winners
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.engine_ports import TO_DRIVER, Row, Stages
from sidecar.errors import StagingFull
from sidecar.exchange import staged
from sidecar.rewriting.local_engine import LocalEngine
from tests.compaction.engine import compact
from tests.compaction.partitions import partition_in
from tests.descriptors import open_below
from tests.golden import golden, wall_clock_ms

NOW_MS = wall_clock_ms("4.3.0")


@pytest.mark.parametrize(("threads", "in_memory_bytes"), [(1, 0), (1, 5_000), (3, 0), (3, 5_000), (3, 1 << 26)])
@pytest.mark.parametrize(("name", "strategy"), [("compacted-0", Strategy.TIMESTAMP), ("orders-0", Strategy.OFFSET)])
def test_the_result_is_the_same(name: str, strategy: Strategy, threads: int, in_memory_bytes: int) -> None:
    partition = partition_in(golden("4.3.0") / "logs" / name)
    rules = CompactionRules(NOW_MS, strategy=strategy)
    options: dict[str, Any] = {"last_batches": partition.last_batches(NOW_MS), "split_bytes": 4096, "apart": True}
    _, expected = compact(partition.decided, rules, partition, **options)
    _, logs = compact(
        partition.decided, rules, partition, threads=threads, in_memory_bytes=in_memory_bytes, slots=1024, **options
    )
    assert logs == expected


def _failing(task: int) -> Iterator[Row]:
    yield TO_DRIVER, task
    if task == 2:
        raise KeyError(task)


def _doubled(bucket: int, values: Sequence[Any]) -> Iterator[Row]:
    yield from ((bucket, value) for value in values)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_task_raises_ends_the_run(threads: int) -> None:
    with (
        pytest.raises(KeyError),
        LocalEngine(threads).staged(Stages(_failing, _doubled, 1, 1, 1), [1, 2, 3]),
    ):
        pytest.fail("no stage ended")


def test_after_an_interruption_no_other_task_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    running, is_closing = threading.Barrier(3, timeout=600), threading.Event()
    begun: list[int] = []

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(False, cancel_futures=cancel_futures)
            is_closing.set()  # Not before: a thread that is done would take the next task.
            super().shutdown(wait)

    def waits(task: int) -> Iterator[Row]:
        begun.append(task)
        if task < 2:
            running.wait()
            is_closing.wait(600)
        yield TO_DRIVER, task

    monkeypatch.setattr("sidecar.rewriting.local_engine.ThreadPoolExecutor", Pool)
    with pytest.raises(KeyboardInterrupt):
        _interrupted(waits, running)
    assert len(begun) == 2


def _interrupted(first: Callable[[int], Iterator[Row]], running: threading.Barrier) -> None:
    heard = False

    def hear(*_: object) -> None:
        nonlocal heard
        if not heard:
            heard = True
            raise KeyboardInterrupt

    def interrupts() -> None:
        running.wait()
        # Trap: a signal that comes just before the main thread begins to wait for a lock does not end that wait.
        while not heard:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)  # noqa: TID251 - threads have no other clock

    thread = threading.Thread(target=interrupts)
    # A suite that a shell runs in the background passes on that SIGINT is ignored.
    before = signal.signal(signal.SIGINT, hear)
    thread.start()
    try:
        with LocalEngine(2).staged(Stages(first, _doubled, 1, 1, 1), range(9)):
            pytest.fail("no stage ended")
    finally:
        thread.join()
        signal.signal(signal.SIGINT, before)


def _large(task: int) -> Iterator[Row]:
    yield task, bytes(100)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    place = tmp_path / "taken"
    place.touch()
    stages = LocalEngine(1, place, in_memory_bytes=0)
    with pytest.raises(StagingFull, match="taken"), stages.staged(Stages(_large, _doubled, 4, 1, 1), [1, 2]):
        pytest.fail("rows were written")


def test_the_file_of_the_first_exchange_is_gone_after_the_second_stage(tmp_path: Path) -> None:
    def open_files() -> int:
        return len(open_below(tmp_path))

    def second(bucket: int, values: Sequence[Any]) -> Iterator[Row]:
        during.append(open_files())
        yield from _doubled(bucket, values)

    during: list[int] = []
    with LocalEngine(1, tmp_path, in_memory_bytes=0).staged(Stages(_large, second, 4, 1, 1), [1, 2]) as run:
        assert (max(during), open_files()) == (2, 1)
        assert run.waiting_bytes == 200
    with LocalEngine(1, tmp_path).staged(Stages(_large, second, 4, 1, 1), [1, 2]) as run:
        assert run.waiting_bytes == 0


_WAITING_BYTES = 1_000_000


def _decided(task: int) -> Iterator[Row]:
    """As of a small partition, which one task scans and decides."""
    yield task, (Winners(0, task.to_bytes(1) * _WAITING_BYTES),)


def test_winners_of_small_partitions_wait_in_the_file_as_well(tmp_path: Path) -> None:
    """Each is small, and there may be thousands: their sum has no other bound than the size of the job."""
    held_bytes: list[int] = []

    def second(bucket: int, values: Sequence[Any]) -> Iterator[Row]:
        held_bytes.append(tracemalloc.get_traced_memory()[0])
        ((winners,),) = values
        yield bucket, winners.ordinals

    tracemalloc.start()
    try:
        engine = LocalEngine(1, tmp_path, in_memory_bytes=0)
        with staged(engine, Stages(_decided, second, 20, 1, 1), range(20)) as run:
            found = run.third(
                lambda rows, _plan: iter([(item, bytes(value[:1])) for item, value in rows]), [None], False
            )
    finally:
        tracemalloc.stop()
    assert sorted(found) == [(task, task.to_bytes(1)) for task in range(20)]
    assert max(held_bytes) < 4 * _WAITING_BYTES
