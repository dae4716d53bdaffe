"""A standalone cluster of Spark over a real S3 server with an archive in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sidecar.config import Settings, SparkSettings
from sidecar.config.loading import load_settings
from sidecar.runner.backfill import backfill
from tests.golden import golden
from tests.real.product import PREFIX, s3_settings
from tests.servers.spark_cluster import CLASS_PATH, EXECUTOR_MIB, ONE_EACH, SparkCluster
from tests.servers.versitygw import VersityGateway

ROOT = Path(__file__).parents[2]
DRIVER = ("spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", *ONE_EACH)
SPECULATIVE = (
    "spark.speculation=true",
    "spark.speculation.interval=100ms",
    "spark.speculation.quantile=0.5",
    "spark.speculation.multiplier=1.1",
)
"""Whatever takes a little longer than the others is begun once more."""


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
            options=(*DRIVER, *SPECULATIVE, f"spark.executor.extraClassPath={CLASS_PATH}"),
        )


@contextmanager
def a_site(place: Path) -> Iterator[Site]:
    """A cluster, and some golden topics archived below `kafka`; Python on the machines finds this program in the tree."""
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
