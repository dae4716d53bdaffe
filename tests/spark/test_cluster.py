"""Work on a standalone cluster over a real S3 server: the same findings as here; a lost executor costs time only."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.compaction.rules import CompactionRules, Strategy
from sidecar.config import Settings, SparkSettings
from sidecar.config.loading import load_settings
from sidecar.discovery.topic_filter import TopicFilter
from sidecar.pipeline import scrub
from sidecar.pipeline.backfill import backfill
from sidecar.pipeline.compaction.local_stages import LocalStages
from sidecar.pipeline.process_store import store_of
from sidecar.pipeline.scrub import PRELOADED, ChecksOnEngine
from sidecar.pipeline.snapshots.folding import Forgetting
from sidecar.pipeline.snapshots.local_engine import LocalEngine
from sidecar.pipeline.snapshots.rebuild import rebuild
from sidecar.pipeline.snapshots.targets import archive_targets
from sidecar.pipeline.verify import PartitionVerification, verify_archive
from sidecar.spark.embedded import EmbeddedSpark
from sidecar.spark.engine import SparkEngine
from sidecar.spark.stages import SparkStages
from sidecar.storage import open_store
from tests.compaction.directories import compacted
from tests.golden import golden
from tests.real.product import PREFIX, json_lines, run_program, s3_settings
from tests.servers.spark_cluster import EXECUTOR_MIB, ONE_EACH, SparkCluster
from tests.servers.versitygw import VersityGateway
from tests.snapshots.log_dirs import tree
from tests.spark.archives import archived, compact, live
from tests.spark.slow_tasks import Gate, GatedEngine, GatedStages

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
DRIVER = ("spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", *ONE_EACH)
SPECULATIVE = (
    "spark.speculation=true",
    "spark.speculation.interval=100ms",
    "spark.speculation.quantile=0.5",
    "spark.speculation.multiplier=1.1",
)
"""Whatever takes a little longer than the others is begun once more: results must not show it."""
FORGETTING = Forgetting(SystemClock().now_ms(), None)


@dataclass(frozen=True)
class Site:
    """An archive on a real store, and a cluster whose machines have the store's keys in their environment."""

    gateway: VersityGateway
    cluster: SparkCluster
    flags: dict[str, str]
    archive: Settings

    @property
    def spark(self) -> SparkSettings:
        return SparkSettings(
            master=self.cluster.url,
            driver_memory_bytes=512 << 20,
            executor_memory_bytes=EXECUTOR_MIB << 20,
            options=(*DRIVER, *SPECULATIVE),
        )


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    place = tmp_path_factory.mktemp("cluster")
    with VersityGateway(place / "s3", options=["--quiet"]) as gateway:
        flags = {**s3_settings(gateway), "store.url": f"s3://{gateway.bucket}/kafka"}
        keys = {name: flags[name] for name in ("store.s3.access_key_id", "store.s3.secret_access_key")}
        machines = {PREFIX + path.upper().replace(".", "__"): value for path, value in keys.items()}
        with SparkCluster(place / "spark", environment={**machines, "PYTHONPATH": str(ROOT)}) as cluster:
            more = {
                "broker.log_dirs": [golden("4.3.0") / "logs"],
                "broker.assume_leader": True,
                "broker.settle_ms": 0,
                "run.state_dir": place / "state",
                "topics.include": ["orders", "transactions", "compacted"],
            }
            archive = load_settings(flags={**flags, **more}).settings
            assert backfill(archive, dry_run=False).exit_code == 0
            yield Site(gateway, cluster, flags, archive)


@pytest.fixture(scope="module", name="spark")
def _spark(site: Site) -> Iterator[EmbeddedSpark]:
    preload = [*PRELOADED, "sidecar.pipeline.compaction.preloaded"]
    with EmbeddedSpark(site.spark, preload=preload, store=site.archive.store) as spark:
        yield spark


@pytest.fixture(name="engine")
def _engine(spark: EmbeddedSpark) -> SparkEngine:
    return SparkEngine(spark)


def scrubbed(site: Site, checks: ChecksOnEngine | None = None) -> list[PartitionVerification]:
    store = open_store(site.archive.store)
    try:
        return list(verify_archive(store, SystemClock(), deep=True, checks=checks))
    finally:
        store.close()


def wait_for(what: Callable[[], object]) -> None:
    for _ in range(2400):
        if what():
            return
        threading.Event().wait(0.05)
    pytest.fail("it did not come")


def test_a_scrub_finds_what_this_process_finds(site: Site, engine: SparkEngine) -> None:
    assert all(found.is_sound for found in scrubbed(site))
    objects = sorted(
        path for path in site.gateway.objects.rglob("*.log") if path.is_file() and path.stat().st_size > 200
    )
    damaged, gone = objects[0], objects[-1]
    whole = damaged.read_bytes()
    try:
        damaged.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        away = gone.rename(gone.with_suffix(".away"))
        here = scrubbed(site)
        on_cluster = scrubbed(site, ChecksOnEngine(site.archive.store, engine))
    finally:
        damaged.write_bytes(whole)
        away.rename(gone)
    assert [(one.row, one.problems, one.segments) for one in on_cluster] == [
        (one.row, one.problems, one.segments) for one in here
    ]
    kinds = {str(problem.kind) for one in on_cluster for problem in one.problems}
    assert {"missing_object", "corrupt_content"} <= kinds


def test_snapshots_are_rebuilt_from_archived_segments(site: Site, engine: SparkEngine, tmp_path: Path) -> None:
    targets = archive_targets(site.archive.store, SystemClock(), TopicFilter())
    for name, runner in (("here", LocalEngine(1)), ("there", engine)):
        assert rebuild(targets, tmp_path / name, runner, FORGETTING).exit_code == 0
    assert tree(tmp_path / "there") == tree(tmp_path / "here")
    assert len(tree(tmp_path / "here")) > 20


def test_an_executor_that_is_killed_in_the_middle_costs_time_only(
    site: Site, engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrub, "_TASK_SEGMENTS", 4)
    here = scrubbed(site)
    gate = Gate(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(scrubbed, site, ChecksOnEngine(site.archive.store, GatedEngine(engine, gate)))
        try:
            # Each of the two executors has a task, and neither has answered.
            wait_for(lambda: len(gate.waiting) >= 2)
            site.cluster.kill_executor(gate.waiting[0])
            wait_for(site.cluster.lost_executors)
        finally:
            gate.open()
        assert running.result(120) == here
    # The one that was lost came to the gate, and was done again elsewhere.
    assert gate.passed >= sum(len(one.segments) for one in here) // 4


def test_a_compaction_whose_executor_is_killed_between_its_stages(
    site: Site, spark: EmbeddedSpark, tmp_path: Path
) -> None:
    """With the executor go the key tables that it had made: they are made again. (These machines share a disk.)"""
    path = golden("4.3.0") / "logs" / "compacted-0"
    rules = CompactionRules(0, strategy=Strategy.TIMESTAMP)
    compacted(path, tmp_path / "here" / path.name, rules)
    gate = Gate(tmp_path / "gate")
    gate.directory.mkdir()
    lost_before = site.cluster.lost_executors()
    engine = GatedStages(SparkStages(spark), gate)
    with ThreadPoolExecutor(1) as pool:
        there = tmp_path / "there" / path.name
        running = pool.submit(compacted, path, there, rules, engine, split_bytes=4096)
        try:
            wait_for(lambda: gate.waiting)
            site.cluster.kill_executor(gate.waiting[0])
            wait_for(lambda: site.cluster.lost_executors() > lost_before)
        finally:
            gate.open()
        running.result(120)
    assert tree(tmp_path / "there") == tree(tmp_path / "here")


def test_an_archive_whose_compaction_loses_an_executor(site: Site, spark: EmbeddedSpark, tmp_path: Path) -> None:
    """In the store only, as on machines that share nothing: nobody sees anything before the commits."""
    urls = [f"s3://{site.gateway.bucket}/{name}" for name in ("here", "there")]
    here, there = [archived(site.flags, url, tmp_path / url[-4:]) for url in urls]
    raw = live(there)
    commits = compact(here, LocalStages())
    assert commits > 1
    lost_before = site.cluster.lost_executors()
    gate = Gate(tmp_path / "gate")
    gate.directory.mkdir()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(compact, there, GatedStages(SparkStages(spark), gate))
        try:
            wait_for(lambda: gate.waiting or running.done())
            assert live(there) == raw
            site.cluster.kill_executor(gate.waiting[0])
            wait_for(lambda: site.cluster.lost_executors() > lost_before)
        finally:
            gate.open()
        assert running.result(300) == commits
    assert live(there) == live(here) != raw
    staged = [facts.key for facts in store_of(there.store).list("") if "/staging/" in f"/{facts.key}"]
    assert staged == []


def test_machines_without_this_program_get_it_and_no_key_is_written_anywhere(site: Site, tmp_path: Path) -> None:
    """As from a shell: packed, handed to executors whose Python has nothing, and every segment scrubbed."""
    packages, events = tmp_path / "packages.tar.gz", tmp_path / "events"
    events.mkdir()
    packed = run_program({}, "spark-packages", str(packages), "--json")
    assert packed.returncode == 0, packed.stderr
    assert {"tiered-sidecar", "numba", "boto3"} <= set(json.loads(packed.stdout)["distributions"])
    options = [
        *DRIVER,
        "spark.eventLog.enabled=true",
        "spark.eventLog.compress=false",
        f"spark.eventLog.dir={events.as_uri()}",
    ]
    settings = {
        **site.flags,
        "spark.worker_packages": str(packages),
        "spark.worker_python": sys._base_executable,
        "spark.executor_memory_bytes": str(EXECUTOR_MIB << 20),
        "spark.executors_wait_s": "60",
        "spark.options": json.dumps(options),
    }
    done = run_program(settings, "verify", "--deep", "--master", site.cluster.url, "--json")
    assert done.returncode == 0, done.stderr
    rows = json_lines(done)
    assert sum(len(row["segments"]) for row in rows) > 20
    logged = "".join(path.read_text() for path in events.rglob("*") if path.is_file())
    assert "SparkListenerTaskEnd" in logged
    for text in (logged, site.cluster.written(), done.stderr):
        assert site.gateway.secret_key not in text
        assert site.gateway.access_key not in text


def test_a_cluster_that_gives_no_executor(site: Site) -> None:
    asking = {"spark.executor_memory_bytes": str(8 << 30), "spark.executors_wait_s": "1"}
    settings = {**site.flags, **asking, "spark.options": json.dumps(DRIVER)}
    done = run_program(settings, "verify", "--deep", "--master", site.cluster.url)
    assert done.returncode == 1
    assert "gave no executor in 1 s" in done.stderr
