"""Settings of Apache Spark: where its work runs, and what memory that may take."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from sidecar.config.secrets import SecretEntries
from sidecar.model import EngineName
from sidecar.store_settings import MIB, Section

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
_LOCAL_MASTER = re.compile(r"local\[([1-9][0-9]*|\*)( *, *[1-9][0-9]*)?]")
_PLACE_OF_A_SECRET = re.compile(r"_FILE$|[.]secretKeyRef[.]|^spark[.]kubernetes[.](?:driver|executor)[.]secrets[.]")


def holds_secret(option: str) -> bool:
    """Whether `name=value` is to be redacted. The name of a place where a secret is kept is none."""
    return _PLACE_OF_A_SECRET.search(option.partition("=")[0]) is None and _SECRET.search(option) is not None


class SparkSettings(Section):
    """Apache Spark, for work on many segments at once. A JVM runs only while there is such work."""

    engine: EngineName = EngineName.AUTO
    """Where `backfill`, `run`, `compact`, `verify --deep` and `snapshots` process records. `local`: in this
    process, without a JVM. `spark`: always on Spark. `auto`: on the cluster of `master` if it names one and the
    records are in the archive; otherwise `local`, except for compactions above 16 GiB, in `run` above 64 MiB: `spark`."""
    master: str = "local[*]"
    """Where the work runs. `local[*]`: in this container, on all its cores; `local[2]`: on two. `spark://host:7077`,
    `k8s://https://host:443`, `yarn`: on a cluster, for archives; see docs/how-to/run-on-spark.md."""
    driver_memory_bytes: Annotated[int, Field(ge=256 * MIB)] = 1024 * MIB
    """Largest heap of the JVM. The JVM only moves bytes; separate Python processes do the work."""
    worker_memory_bytes: Annotated[int, Field(ge=512 * MIB)] | None = None
    """Limit of the address space of one Python process, which starts with about 400 MiB. Default: no limit."""
    executor_memory_bytes: Annotated[int, Field(ge=450 * MIB)] | None = None
    """Heap of an executor's JVM on a cluster. Default: Spark's own, 1 GiB."""
    executors_wait_s: Annotated[float, Field(gt=0, le=86_400)] = 300.0
    """How long to wait for executors of a cluster."""
    worker_packages: str | None = None
    """Archive that `spark-packages` has written, for clusters whose machines do not have this program. A path or a URL
    that executors can read."""
    worker_python: str | None = None
    """Python on the executors, of the same minor version as here. Default: `PYSPARK_PYTHON`, else the path of the one
    that runs this program."""
    idle_stop_s: Annotated[float, Field(ge=0, le=86_400)] = 300.0
    """How long an idle JVM is kept for more work."""
    local_dir: Path | None = None
    """Directory for data between steps. Default: the system's directory for temporary files."""
    java_home: Path | None = None
    """Where Java 17 or newer is installed. Default: `JAVA_HOME`, else the `java` on the path."""
    options: Annotated[
        tuple[str, ...], Field(repr=False), SecretEntries(holds_secret, example="spark.ui.port=4050")
    ] = ()
    """Other Spark properties, `name=value`. The JVM gets them in a file that only this user can read, secrets
    included."""

    @field_validator("master")
    @classmethod
    def _a_local_master_has_threads(cls, master: str) -> str:
        if master.startswith("local[") and not _LOCAL_MASTER.fullmatch(master):
            raise ValueError(f"expected local[*], or local[N] with an N of 1 or more, found {master!r}")
        return master

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
                    f"{name} would expose a secret: give it to the executors as in docs/how-to/run-on-spark.md"
                )
        return options

    @property
    def is_local(self) -> bool:
        return self.master == "local" or self.master.startswith("local[")
