"""Brings all servers' programs that the gate starts: `python -m tests.servers.bring`, while pip waits for packages.

It needs no package, so that it can run before there is a virtual environment. What it does not bring the first test does
that needs it, and others wait meanwhile.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.helm.tools import go_tool, promtool
from tests.servers import class_archives
from tests.servers.chromium import chromium
from tests.servers.dist import KAFKA_VERSIONS, go_binary, go_module_programs, kafka_libs, python_program, server_libs
from tests.servers.kafka_java import archive_options
from tests.servers.kubernetes import kubernetes_program
from tests.servers.process import ServerError


def _by_go() -> None:
    """Helm first: its modules take longest to come."""
    go_tool("helm")
    go_binary("versitygw")
    go_module_programs("versitygw-racy")
    go_binary("toxiproxy-server")
    kubernetes_program("kube-apiserver")


def _by_maven() -> None:
    """One after the other: Maven's own repository is not made for several at once."""
    for version in KAFKA_VERSIONS:
        kafka_libs(version)
    server_libs("s3proxy")
    class_archives.use()
    for version in KAFKA_VERSIONS:
        archive_options(version)


def _by_others() -> None:
    python_program("ministack")
    promtool()
    chromium()


def _error_of(bring: Callable[[], None]) -> str | None:
    try:
        bring()
    except ServerError as error:
        return str(error)
    return None


def main() -> int:
    """The exit code."""
    with ThreadPoolExecutor() as pool:
        errors = [error for error in pool.map(_error_of, (_by_go, _by_maven, _by_others)) if error]
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
