"""Tasks on threads of this process, and how many threads a container gets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from sidecar.cli.engines import Work, WorkKind, task_engine
from sidecar.config import Settings
from sidecar.host import limits
from sidecar.host.limits import workers_that_fit
from sidecar.ports import MIB
from sidecar.rewriting.local_engine import LocalEngine


def doubled(task: int) -> int:
    return 2 * task


@pytest.mark.parametrize("threads", [1, 2, 200])
def test_answers_come_in_the_order_of_the_tasks(threads: int) -> None:
    assert list(LocalEngine(threads).run(doubled, range(100))) == [2 * task for task in range(100)]


@pytest.mark.parametrize(("threads", "given_out"), [(1, 3), (2, 2 + 2 * 4)])
def test_tasks_wait_until_earlier_answers_were_taken(threads: int, given_out: int) -> None:
    given: list[int] = []

    def tasks() -> Iterator[int]:
        for task in range(100):
            given.append(task)
            yield task

    answers = LocalEngine(threads).run(doubled, tasks())  # type: ignore[arg-type]  # it only goes through them
    assert list(islice(answers, 3)) == [0, 2, 4]
    answers.close()
    assert len(given) == given_out


@pytest.mark.parametrize(
    ("cores", "limit_mib", "workers"), [(64, None, 64), (64, 512, 8), (4, 512, 4), (64, 4096, 64), (64, 200, 1)]
)
def test_a_small_container_on_a_large_node_gets_no_more_workers_than_fit(
    cores: int, limit_mib: int | None, workers: int
) -> None:
    assert workers_that_fit(cores, None if limit_mib is None else limit_mib * MIB, 32 * MIB) == workers


def where(_task: int) -> int:
    return threading.get_ident()


def test_where_only_one_worker_fits_no_thread_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text(f"{300 * MIB}\n")
    monkeypatch.setattr(limits, "MEMORY_FILES", (limit,))
    monkeypatch.setattr(limits, "processors", lambda: 64)
    settings = Settings.model_validate({"store": {"url": "/archive"}})
    with task_engine(settings, Work(WorkKind.READING, 0, on_this_machine=True), None) as engine:
        assert set(engine.run(where, range(5))) == {threading.get_ident()}
