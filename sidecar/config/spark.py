"""Settings of Apache Spark: where its work runs, and what memory that may take."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from sidecar.config.section import MIB, SecretEntries, Section
from sidecar.model import EngineName

_SPARK_PROPERTIES_OF_SETTINGS = {
    "spark.master": "master",
    "spark.driver.memory": "driver_memory_bytes",
    "spark.executor.memory": "executor_memory_bytes",
    "spark.executor.pyspark.memory": "worker_memory_bytes",
}
_VISIBLE = (
    *("spark.executorEnv.", "spark.kubernetes.driverEnv.", "spark.yarn.appMasterEnv."),
    *(f"spark.{process}.{kind}JavaOptions" for process in ("driver", "executor") for kind in ("default", "extra")),
)
"""What others can read whatever Spark redacts: environments and arguments of processes."""
SECRET_PROPERTY = "(?i)secret|password|token|access[._-]?key|credential|passphrase|(?:account|private|api)[._-]?key"  # noqa: S105
"""Names and values that Spark redacts by default, and some of Hadoop's. Source: SECRET_REDACTION_PATTERN, Apache Spark."""
_SECRET = re.compile(SECRET_PROPERTY)
_PROPERTY_NAME = re.compile(r"spark[.][^\s:=]+")
_PLACE_OF_A_SECRET = re.compile(r"_FILE$|[.]secretKeyRef[.]|^spark[.]kubernetes[.](?:driver|executor)[.]secrets[.]")


def holds_secret(option: str) -> bool:
    """Whether `name=value` is to be redacted. The name of a place where a secret is kept is none."""
    return _PLACE_OF_A_SECRET.search(option.partition("=")[0]) is None and _SECRET.search(option) is not None


class SparkSettings(Section):
    """Apache Spark, for work on many segments at once. A JVM runs only while there is such work."""

    engine: EngineName = EngineName.AUTO
    """Where `backfill`, `run`, `compact`, `verify --deep` and `snapshots` process records. `local`: in processes of this program,
    without a JVM. `spark`: on Spark, always. `auto`: on the cluster of `master` if it names one and the records are in the archive;
    otherwise wherever the work is done sooner, by the measurement in docs/how-to/run-on-spark.md."""
    master: str = "local[*]"
    """Where the work runs. `local[*]`: in this container, on all its cores; `local[2]`: on two. `spark://host:7077`,
    `k8s://https://host:443`, `yarn`: on a cluster, for archives; see docs/how-to/run-on-spark.md."""
    driver_memory_bytes: Annotated[int, Field(ge=256 * MIB)] = 1024 * MIB
    """Largest heap of the JVM. It only moves bytes; the work is done in Python processes beside it."""
    worker_memory_bytes: Annotated[int, Field(ge=512 * MIB)] | None = None
    """Address space that one Python process may take; it begins with some 400 MiB. Default: no limit."""
    executor_memory_bytes: Annotated[int, Field(ge=450 * MIB)] | None = None
    """Heap of an executor's JVM on a cluster. Default: Spark's own, 1 GiB."""
    executors_wait_s: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    """How long a cluster may take to give executors."""
    worker_packages: str | None = None
    """Archive that `spark-packages` has written, a path or a URL that executors can read: for clusters whose machines do
    not have this program."""
    worker_python: str | None = None
    """Python on the executors, of the same minor version as here. Default: `PYSPARK_PYTHON`, else the path of the one
    that runs this program."""
    idle_stop_s: Annotated[float, Field(ge=0, le=86_400)] = 300.0
    """How long the JVM is kept for more work after the last."""
    local_dir: Path | None = None
    """Directory for what is exchanged between steps. Default: the system's for temporary files."""
    java_home: Path | None = None
    """Where Java 17 or newer is installed. Default: `JAVA_HOME`, else the `java` on the path."""
    options: Annotated[
        tuple[str, ...], Field(repr=False), SecretEntries(holds_secret, example="spark.ui.port=4050")
    ] = ()
    """Any other Spark properties, `name=value`. Secrets among them reach the JVM in a file that only this user can read."""

    @field_validator("options")
    @classmethod
    def _options_are_spark_properties(cls, options: tuple[str, ...]) -> tuple[str, ...]:
        for number, option in enumerate(options):
            name, equals, _ = option.partition("=")
            if not equals or not _PROPERTY_NAME.fullmatch(name):
                begins = _PROPERTY_NAME.match(option)  # Only this is shown: the rest may be a secret.
                shown = f" ({begins.group()})" if begins else ""
                raise ValueError(
                    f"entry {number}{shown} is not name=value of a Spark property, such as spark.ui.port=4050"
                )
            if name in _SPARK_PROPERTIES_OF_SETTINGS:
                raise ValueError(f"{name} is set by the setting `{_SPARK_PROPERTIES_OF_SETTINGS[name]}`")
            if name.startswith(_VISIBLE) and holds_secret(option):
                raise ValueError(
                    f"{name} would show a secret: give it to the executors as docs/how-to/run-on-spark.md says"
                )
        return options

    @property
    def is_local(self) -> bool:
        return self.master == "local" or self.master.startswith("local[")
