"""What a JVM needs of this machine, checked before one is started: its own messages hide the cause."""

import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sidecar.errors import SidecarError

OLDEST_JAVA: Final = 17
_PACKAGES: Final = "on Debian and Ubuntu: openjdk-17-jre-headless; on Fedora and RHEL: java-17-openjdk-headless"
_TIMEOUT_S: Final = 60.0


class SparkUnavailable(SidecarError):
    """Spark cannot be started here; the message says what is missing."""


def java_home(configured: Path | None, environment: Mapping[str, str]) -> Path | None:
    """The home to start Java from, None for the `java` on the path. Raises SparkUnavailable without a Java 17 or newer."""
    named = configured or (Path(environment["JAVA_HOME"]) if environment.get("JAVA_HOME") else None)
    program = "java" if named is None else str(named / "bin" / "java")
    java = shutil.which(program, path=environment.get("PATH"))
    if java is None:
        where = "there is no java on the path" if named is None else f"{program} does not exist"
        raise SparkUnavailable(
            f"Spark needs Java {OLDEST_JAVA} or newer, and {where}: install it ({_PACKAGES}), or set "
            "spark.java_home; without Java, use --engine local"
        )
    version = _version_of(java)
    if version is not None and version < OLDEST_JAVA:
        raise SparkUnavailable(f"Spark needs Java {OLDEST_JAVA} or newer, {java} is {version}: install {_PACKAGES}")
    return named


def require_user_name() -> None:
    """Raises SparkUnavailable if the user id has no name: Hadoop's login then fails with a message about null."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError as error:
        raise SparkUnavailable(
            f"user id {os.getuid()} has no entry in /etc/passwd, without which Spark does not start: run as a user "
            "id that the image has, or add an entry for this one"
        ) from error


def _version_of(java: str) -> int | None:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkUnavailable(
            f"{java} cannot be run: {error}; set spark.java_home to a working Java, or use --engine local"
        ) from error
    found = re.search(r'version "(?:1\.)?(\d+)', done.stdout + done.stderr)
    return int(found[1]) if found else None
