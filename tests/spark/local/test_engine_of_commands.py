"""`--engine` and `spark.engine` mean the same in every command that processes records: Spark does the work, with the same bytes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from sidecar.cli import engines, reporting
from sidecar.config import SparkSettings
from sidecar.spark.embedded import EmbeddedSpark
from tests.cli.running import Outcome, in_this_process, tiered_sidecar
from tests.cli.test_unkeyed_records import assert_refusal_leaves_an_archive_as_it_is
from tests.golden import golden, golden_copy
from tests.spark.archives import live
from tests.tiny_benchmarks import result_of

pytestmark = [pytest.mark.real, pytest.mark.slow]

VERSION = "4.3.0"
TOPICS = ("--topic", "compacted", "--topic", "transactions")
MASTER = ("--master", "local[2]")
SPARK = ("--engine", "spark", *MASTER)
LOCAL = ("--engine", "local")
WAIT_S = 240.0


class Shared:
    """One Spark context for all commands, as each of them would have its own."""

    def __init__(self, spark: EmbeddedSpark) -> None:
        self.spark = spark
        self.settings: list[SparkSettings] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Others go on with it."""

    def stop(self) -> None:
        """As above."""

    @contextmanager
    def context(self) -> Iterator[Any]:
        with self.spark.context() as context:
            yield context

    def death(self, wait_s: float = 0.0) -> str | None:
        return self.spark.death(wait_s)

    @property
    def jobs(self) -> int:
        """Jobs that Spark itself has counted."""
        with self.spark.context() as context:
            return int(context._jsc.sc().dagScheduler().numTotalJobs())


@pytest.fixture(scope="module", name="shared")
def _shared(spark: EmbeddedSpark) -> Shared:
    return Shared(spark)


class Runs:
    """Commands on either engine. `local` must not even ask for Spark."""

    def __init__(self, shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
        self._shared = shared
        self._patch = monkeypatch

    def local(self, *arguments: str | Path) -> Outcome:
        def refuse(*_: object, **__: object) -> Any:
            raise AssertionError("a command on the local engine asked for Spark")

        self._hand_out(refuse)
        return in_this_process(*arguments, *LOCAL)

    def on_spark(self, *arguments: str | Path) -> Outcome:
        def hand_out(settings: Any, *_: object, **__: object) -> Any:
            self._shared.settings.append(settings.spark)
            return self._shared

        self._hand_out(hand_out)
        before = self._shared.jobs
        outcome = in_this_process(*arguments, *SPARK)
        assert self._shared.jobs > before, "no job of Spark has run"
        assert self._shared.settings[-1].master == "local[2]"
        return outcome

    def _hand_out(self, function: Callable[..., Any]) -> None:
        for module in (engines, reporting):
            self._patch.setattr(module, "embedded_spark", function)


@pytest.fixture(name="runs")
def _runs(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(shared, monkeypatch)


@pytest.fixture(scope="module", name="archive")
def _archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("archived")
    assert in_this_process("backfill", *archiving(place), *LOCAL).code == 0
    return place / "archive"


def archiving(place: Path) -> list[str | Path]:
    """Arguments of `backfill` and `run`."""
    where = ["--log-dir", golden(VERSION) / "logs", "--archive", place / "archive", "--state-dir", place / "state"]
    return [*where, *TOPICS, "--assume-leader", "--set", "broker.settle_ms=0"]


def tree(directory: Path, part: str = "") -> dict[str, bytes]:
    """Files by path, of those with `part` in it; random ids of segments are left out of the names.

    A file that is still being written, or vanishes meanwhile, is left out.
    """
    found = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if part in f"/{name}" and not name.endswith(".uploading"):
            with suppress(FileNotFoundError, IsADirectoryError):
                found[re.sub(r"(\d{20})-[\w-]{22}", r"\1", name)] = path.read_bytes()
    return found


def segments_in(archive: Path) -> dict[str, bytes]:
    """Logs, and indexes with snapshots: what was read and rebuilt."""
    return tree(archive, "/segments/")


def test_compact_a_directory(runs: Runs, tmp_path: Path) -> None:
    partition = golden(VERSION) / "logs" / "compacted-0"
    for run, name in ((runs.local, "local"), (runs.on_spark, "spark")):
        done = run("compact", partition, "--out", tmp_path / name / "compacted-0", "--now-ms", "1790000000000")
        assert done.code == 0, done.err
    assert tree(tmp_path / "local") == tree(tmp_path / "spark") != {}


def test_compact_an_archive(runs: Runs, archive: Path, tmp_path: Path) -> None:
    from sidecar.config.loading import load_settings

    found = []
    for run, name in ((runs.local, "local"), (runs.on_spark, "spark")):
        shutil.copytree(archive, tmp_path / name)
        done = run("compact", "--archive", tmp_path / name, "--topic", "compacted", "--now-ms", "1790000000000")
        assert done.code == 0, done.err
        found.append(live(load_settings(flags={"store.url": str(tmp_path / name)}).settings))
    assert found[0] == found[1] != live(load_settings(flags={"store.url": str(archive)}).settings)


def test_verify_deep(runs: Runs, archive: Path) -> None:
    local = runs.local("verify", "--deep", "--archive", archive, "--json")
    spark = runs.on_spark("verify", "--deep", "--archive", archive, "--json")
    assert local.code == spark.code == 0, spark.err
    assert local.out == spark.out != ""


def test_snapshots_rebuild_and_check(runs: Runs, tmp_path: Path) -> None:
    log_dir = golden(VERSION) / "logs"
    for run, name in ((runs.local, "local"), (runs.on_spark, "spark")):
        done = run("snapshots", "rebuild", log_dir, "--out", tmp_path / name, *TOPICS)
        assert done.code == 0, done.err
    assert tree(tmp_path / "local") == tree(tmp_path / "spark") != {}
    local = runs.local("snapshots", "check", log_dir, *TOPICS, "--json")
    spark = runs.on_spark("snapshots", "check", log_dir, *TOPICS, "--json")
    assert (local.code, local.out) == (spark.code, spark.out)
    assert local.out


def test_snapshots_heal(runs: Runs, tmp_path: Path) -> None:
    found = []
    for run, name in ((runs.local, "local"), (runs.on_spark, "spark")):
        log_dir = golden_copy(VERSION, tmp_path / name) / "logs"
        bases = sorted(path for path in log_dir.glob("transactions-0/*.snapshot") if path.with_suffix(".log").exists())
        missing = bases[1:]
        for path in missing:
            path.unlink()
        done = run("snapshots", "heal", log_dir, *TOPICS, "--json")
        assert done.code == 0, done.err
        assert missing
        assert all(path.exists() for path in missing)
        found.append(tree(log_dir / "transactions-0"))
    assert found[0] == found[1]


def test_backfill(runs: Runs, archive: Path, tmp_path: Path) -> None:
    done = runs.on_spark("backfill", *archiving(tmp_path), "--json")
    assert done.code == 0, done.err
    assert segments_in(tmp_path / "archive") == segments_in(archive) != {}


def test_a_damaged_segment_stops_its_partition_on_spark_as_it_does_here(runs: Runs, tmp_path: Path) -> None:
    reports = []
    for run, name in ((runs.local, "local"), (runs.on_spark, "spark")):
        log_dir = golden_copy(VERSION, tmp_path / "input") / "logs"
        log = min(log_dir.glob("transactions-0/*.log"))
        data = bytearray(log.read_bytes())
        data[100] ^= 1
        log.write_bytes(data)
        place = ["--log-dir", log_dir, "--archive", tmp_path / name, "--state-dir", tmp_path / f"{name}-state", *TOPICS]
        done = run("backfill", *place, "--assume-leader", "--set", "broker.settle_ms=0", "--json")
        assert done.code == 3
        (report,) = done.lines()
        reports.append([(row["topic"], row["error"], row["stopped_because"]) for row in report["partitions"]])
        shutil.rmtree(tmp_path / "input")
    assert reports[0] == reports[1]
    assert ("transactions", "CorruptFile") in [row[:2] for row in reports[0]]


def test_run(runs: Runs, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What it tells the allocator of a process of its own is not for this one.
    monkeypatch.setattr("sidecar.cli.archiving.freeze", lambda: None)
    monkeypatch.setattr("sidecar.cli.archiving.share_arenas", lambda: True)
    wanted = set(segments_in(archive))
    over = threading.Event()

    def stop_when_archived() -> None:
        for _ in range(int(WAIT_S / 0.1)):
            commits = len(list((tmp_path / "archive").glob("**/commits/*.json")))
            if over.wait(0.1) or (set(segments_in(tmp_path / "archive")) == wanted and commits >= len(wanted) // 2):
                break
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    watching = threading.Thread(target=stop_when_archived)
    watching.start()
    try:
        quick = ["--set", "run.drain_timeout_s=300", "--set", "run.scan_interval_s=0.2", "--set", "http.bind=null"]
        done = runs.on_spark("run", *archiving(tmp_path), *quick)
    finally:
        over.set()
        watching.join()
    assert done.code == 0, done.err
    assert segments_in(tmp_path / "archive") == segments_in(archive)


@pytest.mark.parametrize("command", ["backfill", "compact", "heal"])
@pytest.mark.parametrize("engine", ["local", "auto"])
def test_local_and_auto_of_little_work_load_no_pyspark(command: str, engine: str, tmp_path: Path) -> None:
    trap = tmp_path / "trap" / "pyspark"
    trap.mkdir(parents=True)
    (trap / "__init__.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n")
    arguments: dict[str, list[str | Path]] = {
        "backfill": ["backfill", *archiving(tmp_path)],
        "compact": ["compact", golden(VERSION) / "logs" / "compacted-0", "--out", tmp_path / "out" / "compacted-0"],
        "heal": ["snapshots", "heal", golden_copy(VERSION, tmp_path / "golden") / "logs"],
    }
    done = tiered_sidecar(*arguments[command], "--engine", engine, variables={"PYTHONPATH": str(trap.parent)})
    assert done.code == 0, done.err
    assert not (tmp_path / "imported").exists()


def test_the_setting_means_what_the_option_means_and_the_option_wins(runs: Runs, tmp_path: Path) -> None:
    setting = ["--set", "spark.engine=spark", "--master", "local[2]"]
    refused = in_this_process("backfill", *archiving(tmp_path), "--set", "spark.engine=spark", *LOCAL)
    assert refused.code == 2
    assert "spark.engine is set twice" in refused.err
    asked: list[bool] = []

    def note(*_: object, **__: object) -> Any:
        asked.append(True)
        raise RuntimeError("asked")

    runs._hand_out(note)
    for command in (["backfill", *archiving(tmp_path)], ["snapshots", "check", golden(VERSION) / "logs"]):
        with pytest.raises(RuntimeError, match="asked"):
            in_this_process(*command, *setting)
    assert len(asked) == 2


def test_a_cluster_is_no_engine_for_files_of_this_machine(tmp_path: Path) -> None:
    refused = in_this_process("backfill", *archiving(tmp_path), "--engine", "spark", "--master", "spark://host:7077")
    assert refused.code == 2
    assert "do not see the files of this machine" in refused.err
    assert not (tmp_path / "archive").exists()


@pytest.mark.apart
def test_both_engines_are_measured(tmp_path: Path) -> None:
    found = result_of("engines", tmp_path)
    assert [row["command"] for row in found["rows"]] == ["compact", "rebuild"] * 2
    assert all(row["local_s"] > 0 and row["spark_s"] > 0 and row["auto"] == "local" for row in found["rows"])


def test_records_without_a_key_are_refused_on_spark_as_here(runs: Runs, tmp_path: Path) -> None:
    assert_refusal_leaves_an_archive_as_it_is(tmp_path, runs.on_spark)
