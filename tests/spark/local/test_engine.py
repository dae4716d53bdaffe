"""The embedded Spark: same answers as here, in order; ends when idle; a failed job ends nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from sidecar.config.topic_filter import TopicFilter
from sidecar.engine_ports import TO_DRIVER, Row, Stages, TaskEngine
from sidecar.io_share import Moving, io_shares
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.snapshots.jobs import Forgetting
from sidecar.snapshots.rebuild import rebuild
from sidecar.snapshots.resolve_paths import find_targets
from sidecar.spark.embedded import EmbeddedSpark
from sidecar.spark.engine import SparkEngine
from sidecar.spark.failures import SparkFailed
from sidecar.verify.segments import Check, scrub
from tests.archive.example import FIRST
from tests.golden import VERSIONS, golden
from tests.snapshots.log_dirs import tree
from tests.spark.local.conftest import GONE

pytestmark = [pytest.mark.real, pytest.mark.slow]


def doubled(task: int) -> bytes:
    return b"%d" % (2 * task)


def fails(task: int) -> bytes:
    if task == 3:
        raise ValueError("task three")
    return b""


def test_answers_come_in_the_order_of_the_tasks(spark: EmbeddedSpark) -> None:
    for count in (0, 1, 5, 1000):
        assert list(SparkEngine(spark).run(doubled, range(count))) == [b"%d" % (2 * task) for task in range(count)]


def waits(task: tuple[Path, int]) -> bytes:
    """Until the short job has ended, but not for ever: the short one needs a core."""
    directory, number = task
    (directory / f"{number}.begun").touch()
    for _ in range(30):
        if (directory / "short").exists():
            break
        time.sleep(0.05)  # noqa: TID251 - in a worker process
    return b""


def test_a_short_job_does_not_wait_for_all_tasks_of_a_long_one(spark: EmbeddedSpark, tmp_path: Path) -> None:
    """Uploads wait for groups of `before_upload`, while a compaction of the archive goes on in another thread."""
    tasks = [(tmp_path, number) for number in range(40)]
    long = threading.Thread(target=lambda: list(SparkEngine(spark).run(waits, tasks)), name="compaction")
    long.start()
    while not any(tmp_path.iterdir()):
        time.sleep(0.05)  # noqa: TID251 - another process writes the file
    short = threading.Thread(target=lambda: list(SparkEngine(spark).run(doubled, [1])), name="before-upload")
    short.start()
    short.join()
    begun = len(list(tmp_path.glob("*.begun")))
    (tmp_path / "short").touch()
    long.join()
    assert begun <= 30, "first in, first out: 36 at least, as each partition has two or three tasks"


def test_a_store_that_is_gone_is_waited_for_once_in_each_worker(spark: EmbeddedSpark) -> None:
    tasks = [[Check("root", FIRST.segment)]] * 32
    found = [one.unread for (one,) in SparkEngine(spark).run(partial(scrub, GONE), tasks)]
    assert [unread for unread in found if "Could not connect" not in unread] == []
    assert 1 <= sum("(2 attempts)" in unread for unread in found) <= 8, (
        "local[2] has two workers, or a few more over time"
    )


def test_snapshots_are_the_same_as_those_made_here(spark: EmbeddedSpark, tmp_path: Path) -> None:
    """All partitions of all log dirs of three brokers, each dir in one job."""
    engines: dict[str, TaskEngine] = {"spark": SparkEngine(spark), "local": LocalEngine(1)}
    for version in VERSIONS:
        for name, engine in engines.items():
            targets = find_targets([golden(version) / "logs"], TopicFilter())
            report = rebuild(targets, tmp_path / name / version, engine, Forgetting(0, None))
            assert report.exit_code == 0
    assert tree(tmp_path / "spark") == tree(tmp_path / "local")
    assert len(tree(tmp_path / "spark")) > 80


def test_a_failed_job_is_reported_and_the_next_one_works(spark: EmbeddedSpark) -> None:
    with pytest.raises(SparkFailed, match="task three"):
        list(SparkEngine(spark).run(fails, range(9)))
    assert list(SparkEngine(spark).run(doubled, [4])) == [b"8"]


def slowly(task: int) -> bytes:
    threading.Event().wait(0.05)
    return doubled(task)


def test_giving_up_does_not_end_the_jobs_of_others(spark: EmbeddedSpark) -> None:
    """The context is shared: a scrub and a rebuild run on it at once."""
    with spark.context() as context:
        others = SparkEngine(spark).run(slowly, range(200))
        assert next(others) == b"0"
        ours = SparkEngine(spark).run(slowly, range(200))
        assert next(ours) == b"0"
        ours.close()  # type: ignore[attr-defined]
        assert list(others) == [b"%d" % (2 * task) for task in range(1, 200)]
        assert context.getLocalProperty("spark.jobGroup.id") is None
        # A cancelled job ends when its running tasks have noticed.
        for _ in range(600):
            if not context.statusTracker().getActiveJobsIds():
                break
            threading.Event().wait(0.05)
        assert context.statusTracker().getActiveJobsIds() == []


def test_answers_that_nobody_wants_any_more(spark: EmbeddedSpark) -> None:
    answers = SparkEngine(spark).run(doubled, range(1000))
    assert next(answers) == b"0"
    answers.close()  # type: ignore[attr-defined]
    assert list(SparkEngine(spark).run(doubled, [1])) == [b"2"]


def shares() -> tuple[int, int]:
    return io_shares(Moving.READS), io_shares(Moving.UPLOADS)


def shares_here(task: int) -> bytes:
    return b"%d" % io_shares(Moving.READS)


def scanned_here(task: int) -> Iterator[Row]:
    yield 0, io_shares(Moving.READS)


def reduced_here(_bucket: int, values: Sequence[int]) -> Iterator[Row]:
    yield TO_DRIVER, (*values, io_shares(Moving.READS))


def rewritten_here(_rows: Iterable[Row], _plan: object) -> Iterator[tuple[int, int]]:
    yield shares()


def test_tasks_and_this_process_divide_the_io_limits(spark: EmbeddedSpark) -> None:
    answers = SparkEngine(spark).run(shares_here, range(4))
    assert (next(answers), shares()) == (b"3", (3, 1))  # local[2], and this process
    assert set(answers) == {b"3"}
    answers = SparkEngine(spark, moving=()).run(shares_here, range(4))
    assert (next(answers), shares()) == (b"3", (1, 1))
    assert set(answers) == {b"3"}
    with SparkEngine(spark).staged(Stages(scanned_here, reduced_here, 1, 1, 1), [0]) as run:
        assert (list(run.answers), shares()) == ([(3, 3)], (1, 1))
        assert run.third(rewritten_here, [None], False) == [(3, 3)]
    assert shares() == (1, 1)


@pytest.mark.parametrize(("uploads", "expected"), [(False, (3, 1)), (True, (3, 3))])
def test_uploads_of_this_process_are_limited_further_only_while_tasks_upload(
    spark: EmbeddedSpark, uploads: bool, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    staged = SparkEngine(spark).staged(Stages(scanned_here, reduced_here, 1, 1, 1), [0])
    with staged as run, spark.context() as context:
        run_job = context.runJob
        monkeypatch.setattr(context, "runJob", lambda *args: (seen.append(shares()), run_job(*args))[1])
        run.third(rewritten_here, [None], uploads)
    assert seen == [expected]


def shares_of_both(_task: int) -> tuple[int, int]:
    return shares()


def test_tasks_that_upload_divide_the_limit_for_uploads_with_this_process(spark: EmbeddedSpark) -> None:
    """As where compacted segments are finished while the process uploads as ever."""
    answers = SparkEngine(spark).run(shares_of_both, range(4), uploads=True)
    assert (next(answers), shares()) == ((3, 3), (3, 3))
    assert set(answers) == {(3, 3)}
    assert shares() == (1, 1)
