# ruff: noqa: INP001 - scripts of the image build, no package
"""Takes out of site-packages what this program never loads: `trim.py SITE_PACKAGES local|all`.

`smoke.py` runs afterwards in the same build and fails it when something was needed all the same.
"""

from __future__ import annotations

import fnmatch
import shutil
import sys
from pathlib import Path

# Jars by name. What only looks unused stays: Spark's start loads breeze, mllib, hive-exec, ivy and orc-mapreduce by name.
NEVER_LOADED = (
    "connect-repl",
    "algebra_*",
    "arpack*",
    "cats-kernel_*",
    "curator-*",
    "datanucleus-*",
    "derby*",
    "hive-beeline-*",
    "hive-cli-*",
    "hive-jdbc-*",
    "hive-metastore-*",
    "hive-service-*",
    "JTransforms-*",
    "JLargeArrays-*",
    "jdo-api-*",
    "javax.jdo-*",
    "jline-*",
    "lapack-*",
    "libfb303-*",
    "libthrift-*",
    "*-osx-*",
    "*-windows-*",
    "*-riscv64.jar",
    "netty-transport-classes-kqueue-*",
    "rocksdbjni-*",
    "scala-compiler-*",
    "spark-connect_*",
    "spark-graphx_*",
    "spark-hive-thriftserver_*",
    "spark-pipelines_*",
    "spark-repl_*",
    "spire*",
    "zookeeper-*",
)
ONLY_ON_CLUSTERS = ("kubernetes-*", "spark-kubernetes_*", "spark-yarn_*", "vertx-*", "volcano-*", "zjsonpatch-*")

# Folders relative to site-packages.
NEVER_IMPORTED = (
    "pyspark/data",
    "pyspark/examples",
    "pyspark/ml",
    "pyspark/mllib",
    "pyspark/pandas",
    "pyspark/pipelines",
    "pyspark/sbin",
    "numba/tests",
    "numba/cuda",
    "numpy/*/tests",
)
# boto3 itself, and all ways to get credentials; every other service is an unused description.
AWS_SERVICES = ("s3", "sts", "sso", "sso-oidc", "signin")


def main() -> None:
    """Remove them, and say how much that was."""
    packages, jars = Path(sys.argv[1]), sys.argv[2]
    if jars not in {"local", "all"}:
        sys.exit(f"SPARK_JARS is {jars!r}: local or all")
    before_bytes = _size_bytes(packages)
    unwanted = NEVER_LOADED + (ONLY_ON_CLUSTERS if jars == "local" else ())
    for jar in (packages / "pyspark" / "jars").iterdir():
        if any(fnmatch.fnmatchcase(jar.name, pattern) for pattern in unwanted):
            _remove(jar)
    for pattern in NEVER_IMPORTED:
        for folder in packages.glob(pattern):
            _remove(folder)
    for service in (packages / "botocore" / "data").iterdir():
        if service.is_dir() and service.name not in AWS_SERVICES:
            _remove(service)
    print(f"site-packages: {before_bytes >> 20} MiB, after trimming {_size_bytes(packages) >> 20} MiB")  # noqa: T201


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


def _size_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
