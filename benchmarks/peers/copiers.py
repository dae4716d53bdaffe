"""Peers that copy files to a bucket and back, as their documentation recommends. None of them knows what a segment is."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measuring import Store
from benchmarks.segments import MIB
from tests.servers.dist import go_binary, go_module_programs, python_program

Command = Callable[[Store, str, Path], list[str]]
"""From a store, a prefix in it and a directory. Raises ServerError where the program cannot be brought."""


@dataclass(frozen=True)
class Copier:
    """One program. `variables`: what it needs in its environment."""

    upload: Command
    download: Command
    variables: Callable[[Store], dict[str, str]]


def boto3_command(store: Store, task: dict[str, Any]) -> list[str]:
    """For a task of `boto3_copy`, with how to reach the store."""
    client = {"endpoint_url": store.endpoint, "region_name": store.region}
    client |= {"aws_access_key_id": store.access_key, "aws_secret_access_key": store.secret_key}
    whole = json.dumps({**task, "bucket": store.bucket, "client": client})
    return [sys.executable, "-m", "benchmarks.peers.boto3_copy", whole]


@dataclass(frozen=True)
class _Boto3:
    """`transfer`: of TransferConfig. Files wait for one another where a completed upload is assembled: hence several at once."""

    files_at_once: int = 1
    transfer: dict[str, int] = field(default_factory=dict)
    sign: bool = True

    def upload(self, store: Store, prefix: str, directory: Path) -> list[str]:
        return self.command(store, prefix, directory, upload=True)

    def download(self, store: Store, prefix: str, directory: Path) -> list[str]:
        return self.command(store, prefix, directory, upload=False)

    def command(self, store: Store, prefix: str, directory: Path, *, upload: bool, **more: int) -> list[str]:
        """`more`: of a task of `boto3_copy`."""
        task = {**asdict(self), "upload": upload, "prefix": prefix, "directory": str(directory), **more}
        return boto3_command(store, task)


def _rclone(*paths: str) -> list[str]:
    program = str(go_binary("rclone", optimised=True))
    tuned = ["--s3-upload-concurrency", "8", "--s3-chunk-size", "16M", "--s3-no-check-bucket"]
    return [program, "copy", *paths, "--config", os.devnull, *tuned]


def _s5cmd(store: Store, *paths: str) -> list[str]:
    programs = go_module_programs("s5cmd", optimised=True)
    return [str(programs / "s5cmd"), "--endpoint-url", store.endpoint, "cp", *paths]


def _aws(store: Store, *paths: str) -> list[str]:
    program = [str(python_program("aws")), "--endpoint-url", store.endpoint, "s3", "cp"]
    return [*program, *paths, "--recursive", "--only-show-errors"]


def _no_variables(_: Store) -> dict[str, str]:
    return {}


def _rclone_variables(store: Store) -> dict[str, str]:
    settings = {"type": "s3", "provider": "Other", "endpoint": store.endpoint, "region": store.region}
    settings |= {"access_key_id": store.access_key, "secret_access_key": store.secret_key}
    return {f"RCLONE_CONFIG_STORE_{name.upper()}": value for name, value in settings.items()}


def _aws_variables(store: Store) -> dict[str, str]:
    keys = {"AWS_ACCESS_KEY_ID": store.access_key, "AWS_SECRET_ACCESS_KEY": store.secret_key}
    files = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    return {**keys, **files, "AWS_REGION": store.region, "AWS_DEFAULT_REGION": store.region}


_DEFAULTS = _Boto3()
TUNED = _Boto3(3, {"multipart_threshold": 16 * MIB, "multipart_chunksize": 16 * MIB, "max_concurrency": 4}, sign=False)

COPIERS = {
    "boto3, defaults": Copier(_DEFAULTS.upload, _DEFAULTS.download, _no_variables),
    "boto3, tuned": Copier(TUNED.upload, TUNED.download, _no_variables),
    "rclone": Copier(
        lambda store, prefix, directory: _rclone(str(directory), f"store:{store.bucket}/{prefix}"),
        lambda store, prefix, directory: _rclone(f"store:{store.bucket}/{prefix}", str(directory)),
        _rclone_variables,
    ),
    "s5cmd": Copier(
        lambda store, prefix, directory: _s5cmd(store, f"{directory}/", f"s3://{store.bucket}/{prefix}/"),
        lambda store, prefix, directory: _s5cmd(store, f"s3://{store.bucket}/{prefix}/*", f"{directory}/"),
        _aws_variables,
    ),
    "aws-cli": Copier(
        lambda store, prefix, directory: _aws(store, str(directory), f"s3://{store.bucket}/{prefix}/"),
        lambda store, prefix, directory: _aws(store, f"s3://{store.bucket}/{prefix}/", str(directory)),
        _aws_variables,
    ),
}
