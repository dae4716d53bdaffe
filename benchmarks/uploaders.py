"""Ways to upload files, ours and boto3's, each tried in a process of its own, which prints what it measured."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.segments import MIB


@dataclass(frozen=True)
class Contestant:
    """One way to upload: which code, with which part size and threads, and how many files at once."""

    code: str
    part_mib: int
    threads: int
    files_at_once: int = 1
    signed: bool = False
    checksum: bool = True

    @property
    def name(self) -> str:
        kind = (
            ""
            if self.code == "sidecar"
            else f"{', signed' if self.signed else ''}{', CRC-32' if self.checksum else ''}"
        )
        return f"{self.code} {self.part_mib} MiB x {self.threads}, {self.files_at_once} file(s) at once{kind}"


OURS = [Contestant("sidecar", 16, 4, files_at_once=2), Contestant("sidecar", 16, 4)]  # the defaults of S3Settings
BOTO3 = [
    Contestant("boto3", 8, 10, signed=True),  # what upload_file does when nothing is set
    Contestant("boto3", 8, 4, checksum=False),
    Contestant("boto3", 8, 10, checksum=False),
    Contestant("boto3", 16, 4, checksum=False),
    Contestant("boto3", 64, 4, checksum=False),
    Contestant("boto3", 16, 2, files_at_once=2, checksum=False),
    Contestant("boto3", 8, 4, files_at_once=3, checksum=False),
]
TUNING = [Contestant("sidecar", part, threads) for part in (5, 8, 16, 32) for threads in (2, 3, 4, 8)]


def worker_command(contestant: Contestant, gateway: Any, sources: list[str]) -> list[str]:
    """Uploads these files, and prints a JSON object with `mb_per_s`, `peak_mb` and `cpu_s`."""
    task = {
        "contestant": asdict(contestant),
        "sources": sources,
        "endpoint_url": gateway.endpoint,
        "bucket": gateway.bucket,
        "region_name": gateway.region,
        "access_key": gateway.access_key,
        "secret_key": gateway.secret_key,
    }
    return [sys.executable, "-m", "benchmarks.uploaders", json.dumps(task)]


def _upload_all(task: dict[str, Any]) -> dict[str, float]:
    contestant = Contestant(**task["contestant"])
    prepare = {"sidecar": _sidecar_uploader, "boto3": _boto3_uploader}[contestant.code]
    upload = prepare(contestant, task)
    before = resource.getrusage(resource.RUSAGE_SELF)
    started_s = time.perf_counter()
    with ThreadPoolExecutor(contestant.files_at_once) as pool:
        list(pool.map(upload, task["sources"]))
    elapsed_s = time.perf_counter() - started_s
    after = resource.getrusage(resource.RUSAGE_SELF)
    size_bytes = sum(Path(source).stat().st_size for source in task["sources"])
    return {
        "mb_per_s": size_bytes / elapsed_s / 1e6,
        "peak_mb": after.ru_maxrss * 1024 / 1e6,
        "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    }


def _sidecar_uploader(contestant: Contestant, task: dict[str, Any]) -> Callable[[str], None]:
    from sidecar.model import ObjectKey
    from sidecar.storage import FileSource, open_store
    from sidecar.store_settings import StoreSettings

    settings = StoreSettings.model_validate(
        {
            "url": f"s3://{task['bucket']}/benchmark",
            "s3": {
                "endpoint_url": task["endpoint_url"],
                "region": task["region_name"],
                "addressing_style": "path",
                "access_key_id": task["access_key"],
                "secret_access_key": task["secret_key"],
                "part_bytes": contestant.part_mib * MIB,
                "concurrency": contestant.threads,
            },
        }
    )
    store = open_store(settings)

    def upload(source: str) -> None:
        with Path(source).open("rb") as file:
            store.upload(
                ObjectKey(Path(source).name), FileSource(file.fileno(), os.fstat(file.fileno()).st_size, source)
            )

    return upload


def _boto3_uploader(contestant: Contestant, task: dict[str, Any]) -> Callable[[str], None]:
    import boto3
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config

    client = boto3.client(
        "s3",
        endpoint_url=task["endpoint_url"],
        region_name=task["region_name"],
        aws_access_key_id=task["access_key"],
        aws_secret_access_key=task["secret_key"],
        config=Config(
            max_pool_connections=contestant.threads * contestant.files_at_once,
            s3={"addressing_style": "path", **({} if contestant.signed else {"payload_signing_enabled": False})},
            request_checksum_calculation="when_supported" if contestant.checksum else "when_required",
        ),
    )
    part_bytes = contestant.part_mib * MIB
    transfer = TransferConfig(
        multipart_threshold=part_bytes, multipart_chunksize=part_bytes, max_concurrency=contestant.threads
    )

    def upload(source: str) -> None:
        client.upload_file(source, task["bucket"], f"benchmark/{Path(source).name}", Config=transfer)

    return upload


if __name__ == "__main__":
    print(json.dumps(_upload_all(json.loads(sys.argv[1]))))
