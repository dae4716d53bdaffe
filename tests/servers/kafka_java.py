"""Java programs on the jars of one Kafka version: the broker itself, its tools, and single-file programs of our own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.servers import class_archives
from tests.servers.dist import kafka_libs, tool
from tests.servers.java_programs import compiled
from tests.servers.process import ServerError

_LOGGING = Path(__file__).parent / "logging"
# C1 and the serial collector: a broker starts faster, and several fit on two cores. The heap is the caller's.
_JVM_OPTIONS = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true")
_AS_KAFKA_STARTS_IT = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""KAFKA_JVM_PERFORMANCE_OPTS of bin/kafka-run-class.sh."""
_TOOL_TIMEOUT_S = 600.0


def java_command(version: str, *, heap_mb: int, log_level: str, as_in_production: bool = False) -> list[str]:
    """`java` with heap, logging and class path of `version`; the main class follows. What is measured is as in production."""
    log = f"-Dtests.log.level={log_level}"
    if as_in_production:
        options = [f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m", *_AS_KAFKA_STARTS_IT, *_logging_options(version), log]
        return [tool("java"), *options, "-cp", f"{kafka_libs(version)}/*"]
    options = [f"-Xmx{heap_mb}m", *_common_options(version), log, *archive_options(version)]
    return [tool("java"), *options, "-cp", f"{kafka_libs(version)}/*"]


def archive_options(version: str) -> list[str]:
    """For a JVM whose class path begins with the jars of `version`: see class_archives. Raises ServerError."""
    return class_archives.options(version, _common_options(version))


def kafka_tool(version: str, main_class: str, *arguments: str, directory: Path | None = None) -> str:
    """Runs a main class of Kafka (in `directory`) and returns its standard output. Raises ServerError."""
    return _run(java_command(version, heap_mb=512, log_level="WARN"), [main_class, *arguments], directory)


def run_java(source_file: Path, version: str, *arguments: str, directory: Path | None = None) -> str:
    """Runs a single-file Java program on the jars of `version`; returns its standard output. Raises ServerError."""
    libs = kafka_libs(version)
    *command, class_path = java_command(version, heap_mb=512, log_level="WARN")
    # After the jars: an archive of classes holds for a class path that begins like its own.
    command.append(f"{class_path}{os.pathsep}{compiled(source_file.resolve(), libs)}")
    return _run(command, [source_file.stem, *arguments], directory)


def dump_log_segments(version: str, directory: Path, files: Sequence[str], *options: str) -> str:
    """Kafka's own DumpLogSegments over `files` (relative to `directory`, so that its output names no machine path)."""
    main_class = "org.apache.kafka.tools.DumpLogSegments" if _major(version) >= 4 else "kafka.tools.DumpLogSegments"
    # The tools of 4.4.0 are not on Maven Central, and those of 4.3.1 need a method that its records have no more.
    version = "4.3.0" if version == "4.4.0" else version
    return kafka_tool(version, main_class, *options, "--files", ",".join(files), directory=directory)


def _common_options(version: str) -> list[str]:
    return [*_JVM_OPTIONS, *_logging_options(version)]


def _logging_options(version: str) -> list[str]:
    # Kafka logs through log4j 1 (or reload4j) before 4.0 and through log4j 2 since.
    if _major(version) < 4:
        return [f"-Dlog4j.configuration=file:{_LOGGING / 'log4j.properties'}"]
    return [f"-Dlog4j2.configurationFile={_LOGGING / 'log4j2.properties'}"]


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _run(java: Sequence[str], arguments: Sequence[str], directory: Path | None) -> str:
    try:
        done = subprocess.run(
            [*java, *arguments], cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TOOL_TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise ServerError(f"{arguments[0]} took more than {_TOOL_TIMEOUT_S:.0f} s") from error
    output, errors = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    if done.returncode != 0:
        tail = "\n".join((output + errors).splitlines()[-30:])
        raise ServerError(f"{arguments[0]} ended with status {done.returncode}:\n{tail}")
    return output
