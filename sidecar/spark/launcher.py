"""Starts the JVM of a local master directly: without the scripts, and the other JVM, that only work out how to start one.

pyspark runs `$SPARK_HOME/bin/spark-submit`, so it is given a home with nothing but that. Workers then import pyspark from where
it is installed, where it is compiled, and not from the archive of its sources.
"""

import hashlib
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from producer_state.kernel_library import cache_folder
from sidecar.config import SparkSettings

_OPENED: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    # Warnings about an archive that does not fit would go to stdout, which is ours.
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
)
"""As Spark's launcher gives them, without the vector module: that is for linear algebra. Source: JavaModuleOptions."""

_FIRST_JAR: Final = "slf4j-api-"
"""Before the bridges that hold classes of the same names. Source: AbstractCommandBuilder.buildClassPath."""


def direct_start(
    settings: SparkSettings,
    properties: Mapping[str, str],
    home: Path,
    java_home: Path | None,
    environment: Mapping[str, str],
    *,
    train: Path | None = None,
) -> dict[str, str]:
    """Variables of the environment in which pyspark is to start its JVM; none where it must do it in its own way.

    `home`: a directory to be made. `train`: where the JVM is to write a class archive when it ends.
    """
    jars = _jars()
    own_class_path = any(name.startswith("spark.driver.extraClass") for name in properties)
    if not settings.is_local or "SPARK_HOME" in environment or own_class_path or not jars:
        return {}
    java = "java" if java_home is None else str(java_home / "bin" / "java")
    archive = class_archive(java, jars, environment)
    classes = [] if train is not None or not archive.exists() else [f"-XX:SharedArchiveFile={archive}"]
    if train is not None:
        classes = [f"-XX:ArchiveClassesAtExit={train}"]
    command = [
        java,
        f"-Xmx{properties['spark.driver.memory']}",
        *shlex.split(properties["spark.driver.extraJavaOptions"]),
        *_OPTIONS,
        *classes,
        "-cp",
        ":".join(str(jar) for jar in jars),
        "org.apache.spark.deploy.SparkSubmit",
    ]
    script = home / "bin" / "spark-submit"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    script.chmod(0o700)
    return {"SPARK_HOME": str(home)}


def archive_path(java_home: Path | None, environment: Mapping[str, str]) -> Path:
    """Where the class archive of this Java and this Spark belongs, whether it is there or not."""
    return class_archive("java" if java_home is None else str(java_home / "bin" / "java"), _jars(), environment)


def _jars() -> list[Path]:
    """In an order that is the same every time: a class archive holds for one class path."""
    import pyspark

    found = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    return sorted(found, key=lambda jar: not jar.name.startswith(_FIRST_JAR))


def class_archive(java: str, jars: Sequence[Path], environment: Mapping[str, str]) -> Path:
    """The place, in the user's cache, of the classes that a JVM maps instead of reading 280 jars: half the time to a result.

    `$XDG_CACHE_HOME` or `~/.cache`. It holds for one Java and one set of jars; the JVM checks that, and goes on without one
    that does not fit.
    """
    found = hashlib.sha256()
    program = Path(os.path.realpath(shutil.which(java, path=environment.get("PATH")) or java))
    for path in (program, *jars):
        try:
            status = path.stat()
        except OSError:
            continue
        # In whole seconds, as the JVM itself compares them: the layers of an image keep no more.
        found.update(f"{path} {status.st_size} {int(status.st_mtime)}\n".encode())
    return cache_folder(environment) / f"spark-classes-{found.hexdigest()[:16]}.jsa"
