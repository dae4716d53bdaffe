"""The installed program as a child process, or in this one, and what it left in a store, cut out into Kafka's own file names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sidecar.archive.bundle import cut_parts
from sidecar.archive.keys import below
from sidecar.archive.state import PartitionState
from sidecar.model import ArchivedSegment, PartName
from sidecar.ports import ObjectStore
from sidecar.storage.opening import open_store
from sidecar.store_settings import StoreSettings
from tests.cli.running import in_this_process
from tests.real import short_race
from tests.servers.s3_server import S3Server

PROGRAM = Path(sysconfig.get_path("scripts")) / "tiered-sidecar"
SHORT_RACE_PROGRAM = (sys.executable, "-P", str(Path(short_race.__file__)))
"""The same, but a start asks its store less: see `short_race`."""
PREFIX = "TIERED_SIDECAR__"
TIMEOUT_S = 300.0

SUFFIXES = {
    PartName.LOG: "log",
    PartName.OFFSET_INDEX: "index",
    PartName.TIME_INDEX: "timeindex",
    PartName.TRANSACTION_INDEX: "txnindex",
}


def variables_of(settings: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that make these settings (by path)."""
    return {PREFIX + path.upper().replace(".", "__"): value for path, value in settings.items()}


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """This process's environment without settings of ours, and with these (by path)."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("TIERED_SIDECAR", "AWS_"))}
    return {**own, **variables_of(settings)}


def s3_settings(server: S3Server, endpoint: str | None = None) -> dict[str, str]:
    """Settings, by path, with which the program reaches a server; `endpoint` names a proxy in front of it."""
    return {
        "store.s3.endpoint_url": endpoint or server.endpoint,
        "store.s3.region": server.region,
        "store.s3.addressing_style": "path",
        "store.s3.access_key_id": server.access_key,
        "store.s3.secret_access_key": server.secret_key,
    }


def run_program(settings: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, in this process: one of its own costs another second of CPU."""
    done = in_this_process(*arguments, variables=variables_of(settings))
    return subprocess.CompletedProcess([*arguments], done.code, done.out, done.err)


def run_installed(
    settings: Mapping[str, str], *arguments: str, timeout_s: float = TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    """Run a command of the installed program to its end, in a process of its own."""
    return subprocess.run(
        [str(PROGRAM), *arguments],
        env=environment(settings),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def json_lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """What a command printed with `--json`."""
    return [json.loads(line) for line in done.stdout.splitlines()]


@contextmanager
def store_of(settings: Mapping[str, str]) -> Iterator[ObjectStore]:
    """The store that the program was pointed to, through our own adapter."""
    tree: dict[str, Any] = {"s3": {}}
    for path, value in settings.items():
        section, _, name = path.rpartition(".")
        if section == "store":
            tree[name] = value
        elif section == "store.s3":
            tree["s3"][name] = value
    store = open_store(StoreSettings.model_validate(tree))
    try:
        yield store
    finally:
        store.close()


def parts_of(store: ObjectStore, root: str, segment: ArchivedSegment) -> dict[PartName, bytes]:
    """Every part of an archived segment, downloaded, each checked against its commit."""
    key = below(root, segment.indexes_key)
    log = b"".join(store.stream(below(root, segment.log_key)))
    return {PartName.LOG: log, **cut_parts(store.read(key), segment, key)}


def cut_out(store: ObjectStore, states: Mapping[str, PartitionState], destination: Path) -> list[Path]:
    """Write all parts as a broker names them, below `destination/<topic>-<partition>/`; the files, relative to it."""
    written: list[Path] = []
    for partition, state in states.items():
        directory = destination / partition
        directory.mkdir(parents=True)
        for segment in state.segments:
            parts = parts_of(store, state.lineage.root, segment)
            files = {
                directory / f"{segment.base_offset:020d}.{suffix}": parts.get(name) for name, suffix in SUFFIXES.items()
            }
            files[directory / f"{segment.end_offset:020d}.snapshot"] = parts[PartName.PRODUCER_SNAPSHOT]
            for path, content in files.items():
                if content is not None:
                    path.write_bytes(content)
                    written.append(path.relative_to(destination))
    return written
