"""Work on a standalone cluster over a real S3 server: the same findings as here; a lost executor costs time only."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from sidecar.clock import SystemClock
from sidecar.commits.commit_log import CommitLog
from sidecar.commits.lineages import find_all_lineages
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.config.topic_filter import TopicFilter
from sidecar.host.process_store import store_of
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.snapshots.jobs import Forgetting
from sidecar.snapshots.rebuild import rebuild
from sidecar.snapshots.resolve_paths import archive_targets
from sidecar.spark.embedded import EmbeddedSpark
from sidecar.spark.engine import SparkEngine
from sidecar.storage.opening import open_store
from sidecar.verify import segments
from sidecar.verify.segments import PRELOADED, Checks, scrub_on_engine
from sidecar.verify.verify import PartitionVerification, verify_archive
from tests.compaction.directories import compacted
from tests.golden import golden
from tests.real.compacted_archives import assert_compacted, clean_end
from tests.real.daemon import Daemon, eventually
from tests.real.product import json_lines, run_installed
from tests.servers.spark_cluster import EXECUTOR_MIB
from tests.snapshots.log_dirs import tree
from tests.spark.archives import archived, compact, live
from tests.spark.cluster_site import DRIVER, Site, a_site
from tests.spark.slow_tasks import Gate, Gated, GatedEngine, SlowStages, Straggling

pytestmark = [pytest.mark.real, pytest.mark.slow]

FORGETTING = Forgetting(SystemClock().now_ms(), None)


@pytest.fixture(scope="module", name="site")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with a_site(tmp_path_factory.mktemp("cluster")) as site:
        yield site


@pytest.fixture(scope="module", name="spark")
def _spark(site: Site) -> Iterator[EmbeddedSpark]:
    preload = [*PRELOADED, "sidecar.rewriting.preloaded"]
    with EmbeddedSpark(site.spark, preload=preload, store=site.archive.store) as spark:
        yield spark


@pytest.fixture(name="engine")
def _engine(spark: EmbeddedSpark) -> SparkEngine:
    return SparkEngine(spark)


def scrubbed(site: Site, checks: Checks | None = None) -> list[PartitionVerification]:
    store = open_store(site.archive.store)
    try:
        return list(verify_archive(store, SystemClock(), deep=True, checks=checks))
    finally:
        store.close()


def live_logs(site: Site) -> list[Path]:
    """The `.log` objects that the state of the site's archive names: others may lie beside them, and a scrub passes over those."""
    prefix = site.gateway.objects / site.archive.store.url.removeprefix("s3://")
    store = store_of(site.archive.store)
    return [
        prefix / lineage.root / segment.log_key
        for lineage in find_all_lineages(store)
        for segment in CommitLog(store, lineage.root, SystemClock()).read().segments
    ]


def wait_for(what: Callable[[], object]) -> None:
    for _ in range(2400):
        if what():
            return
        threading.Event().wait(0.05)
    pytest.fail("it did not come")


def test_a_scrub_finds_what_this_process_finds(site: Site, engine: SparkEngine) -> None:
    assert all(found.is_sound for found in scrubbed(site))
    logs = live_logs(site)
    damaged, gone = logs[0], logs[-1]
    whole = damaged.read_bytes()
    try:
        damaged.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
        away = gone.rename(gone.with_suffix(".away"))
        here = scrubbed(site)
        on_cluster = scrubbed(site, partial(scrub_on_engine, site.archive.store, engine))
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


@pytest.mark.apart
def test_an_executor_that_is_killed_in_the_middle_costs_time_only(
    site: Site, engine: SparkEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_TASK_SEGMENTS", 4)
    here = scrubbed(site)
    gate = Gate(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(scrubbed, site, partial(scrub_on_engine, site.archive.store, GatedEngine(engine, gate)))
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


@pytest.mark.apart
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
    engine = SlowStages(SparkEngine(spark), partial(Gated, gate=gate))
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
    commits = compact(here, LocalEngine())
    assert commits > 1
    lost_before = site.cluster.lost_executors()
    gate = Gate(tmp_path / "gate")
    gate.directory.mkdir()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(compact, there, SlowStages(SparkEngine(spark), partial(Gated, gate=gate)))
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


@pytest.mark.apart
def test_a_task_that_runs_twice_at_once_leaves_one_result(site: Site, spark: EmbeddedSpark, tmp_path: Path) -> None:
    """A straggler is begun again elsewhere while it still runs; both write their parts, and only one's are used."""
    urls = [f"s3://{site.gateway.bucket}/{name}" for name in ("once", "copy")]
    once, twice = [archived(site.flags, url, tmp_path / url[-4:]) for url in urls]
    commits = compact(once, LocalEngine())
    place = tmp_path / "straggler"
    place.mkdir()
    assert compact(twice, SlowStages(SparkEngine(spark), partial(Straggling, directory=place))) == commits
    assert len(list(place.glob("attempt-*"))) == 2
    assert live(twice) == live(once)
    assert not [facts.key for facts in store_of(twice.store).list("") if "/staging/" in f"/{facts.key}"]


@pytest.mark.apart
def test_run_compacts_on_the_cluster(site: Site, tmp_path: Path) -> None:
    """A sidecar whose master is a cluster: uploads go on from here, compaction from there, the JVM here ends when idle."""
    settings = {
        **site.flags,
        "store.url": f"s3://{site.gateway.bucket}/by-run",
        "broker.log_dirs": str(golden("4.3.0") / "logs"),
        "topics.include": "append-time",
        "compaction.topics": json.dumps([{"pattern": "append-time", "min_cleanable_dirty_ratio": 0.01}]),
        "spark.engine": "spark",
        "run.scan_interval_s": "1",
        "compaction.check_interval_s": "0.2",
        "spark.master": site.cluster.url,
        "spark.driver_memory_bytes": str(512 << 20),
        "spark.executor_memory_bytes": str(EXECUTOR_MIB << 20),
        "spark.idle_stop_s": "1",
        "spark.options": json.dumps(DRIVER),
    }
    with Daemon(tmp_path, settings) as daemon:
        # A JVM and two executors start: 90 s at a load of ten for each core.
        eventually(lambda: daemon.metric("compaction_partitions_total", result="ok") == 1, 400)
        assert daemon.metric("compaction_partitions_total", result="failed") == 0
        assert daemon.process.stop() == 0
    assert clean_end(settings, "append-time-0") > 0
    assert_compacted(settings, "append-time-0")
    assert site.gateway.secret_key not in site.cluster.written()


@pytest.mark.apart
def test_machines_without_this_program_get_it_and_no_key_is_written_anywhere(site: Site, tmp_path: Path) -> None:
    """As from a shell: packed, handed to executors whose Python has nothing, and every segment scrubbed."""
    packages, events = tmp_path / "packages.tar.gz", tmp_path / "events"
    events.mkdir()
    packed = run_installed({}, "spark-packages", str(packages), "--json")
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
    done = run_installed(settings, "verify", "--deep", "--master", site.cluster.url, "--json")
    assert done.returncode == 0, done.stderr
    rows = json_lines(done)
    assert sum(len(row["segments"]) for row in rows) > 20
    logged = "".join(path.read_text() for path in events.rglob("*") if path.is_file())
    assert "SparkListenerTaskEnd" in logged
    for text in (logged, site.cluster.written(), done.stderr):
        assert site.gateway.secret_key not in text
        assert site.gateway.access_key not in text


@pytest.mark.apart
def test_packages_that_are_not_there_are_named(site: Site, tmp_path: Path) -> None:
    settings = {
        **site.flags,
        "spark.options": json.dumps(DRIVER),
        "spark.worker_packages": str(tmp_path / "none.tar.gz"),
    }
    done = run_installed(settings, "verify", "--deep", "--master", site.cluster.url)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: Spark did not start: java.nio.file.NoSuchFileException: ")
    assert f"{tmp_path}/none.tar.gz" in done.stderr.splitlines()[-1]


@pytest.mark.apart
def test_a_cluster_that_gives_no_executor(site: Site) -> None:
    asking = {"spark.executor_memory_bytes": str(8 << 30), "spark.executors_wait_s": "1"}
    settings = {**site.flags, **asking, "spark.options": json.dumps(DRIVER)}
    done = run_installed(settings, "verify", "--deep", "--master", site.cluster.url)
    assert done.returncode == 1
    assert "gave no executor in 1 s" in done.stderr
