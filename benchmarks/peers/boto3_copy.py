"""boto3 as a peer: a process that copies files to or from a bucket, several at once. Its argument is a JSON object."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

MIB: Final = 1 << 20
"""Not imported: what this package has loads the product and numpy, for which a copier would pay at each start."""


def main() -> None:
    """Copy what the argument names: `upload` or download, `transfer` for TransferConfig, and `sign` for signed payloads.

    `streams`: a download is one request for each file. `keys`: of a download, instead of all below `prefix`. Without
    `directory`, what is downloaded is thrown away. `upload_bytes`: so many bytes of a download go back. `checksums`: how often
    each byte that is uploaded or thrown away enters a CRC-32C before. `puts`: so many create-only puts race during an upload, as
    the probe of `backfill` does. `first_gets`: these keys are listed and read before. Prints how many seconds the copies took.
    """
    import boto3
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config
    from crc32c import crc32c

    task: dict[str, Any] = {
        "transfer": {},
        "sign": True,
        "upload": False,
        "streams": False,
        "checksums": 0,
        "puts": 0,
        "first_gets": [],
        **json.loads(sys.argv[1]),
    }
    config = Config(
        s3={"addressing_style": "path", **({} if task["sign"] else {"payload_signing_enabled": False})},
        request_checksum_calculation="when_supported" if task["sign"] else "when_required",
        max_pool_connections=50,
    )
    client = boto3.client("s3", config=config, **task["client"])
    transfer, bucket, directory = (
        TransferConfig(**task["transfer"]),
        task["bucket"],
        Path(task.get("directory", os.devnull)),
    )

    def read(key: str) -> None:
        body = client.get_object(Bucket=bucket, Key=key)["Body"]
        while block := body.read(MIB):
            for _ in range(task["checksums"]):
                crc32c(block)

    def digest(path: str) -> None:
        checksum = 0
        with Path(path).open("rb") as file:
            while block := file.read(MIB):
                checksum = crc32c(block, checksum)

    def race(number: int) -> None:
        with contextlib.suppress(client.exceptions.ClientError):  # Two of them have the same key.
            client.put_object(Bucket=bucket, Key=f"{task['prefix']}/race/{number // 2}", Body=b"", IfNoneMatch="*")

    def copy(key: str) -> None:
        path = str(directory / key.rpartition("/")[2])
        if task["upload"]:
            for _ in range(task["checksums"]):
                digest(path)
            client.upload_file(path, bucket, key, Config=transfer)
        elif task["streams"]:
            with Path(path).open("wb") as file:
                shutil.copyfileobj(client.get_object(Bucket=bucket, Key=key)["Body"], file, MIB)
        else:
            client.download_file(bucket, key, path, Config=transfer)

    if task["upload"]:
        keys = [f"{task['prefix']}/{path.name}" for path in sorted(directory.iterdir())]
    else:
        keys = task.get("keys") or [
            found["Key"] for found in client.list_objects_v2(Bucket=bucket, Prefix=f"{task['prefix']}/")["Contents"]
        ]
    begun_s = time.perf_counter()
    with ThreadPoolExecutor(4) as small, ThreadPoolExecutor(task["files_at_once"]) as pool:
        if task["first_gets"]:
            client.list_objects_v2(Bucket=bucket, Prefix=task["first_gets"][0].partition("/")[0])
        list(small.map(read, task["first_gets"]))
        races = small.map(race, range(task["puts"]))
        list(pool.map(copy if "directory" in task else read, keys))
        list(races)
    print(time.perf_counter() - begun_s)
    if left := task.get("upload_bytes"):
        back = directory / "back"
        with back.open("wb") as file:
            for key in keys:
                with (directory / key.rpartition("/")[2]).open("rb") as source:
                    while left and (block := source.read(min(MIB, left))):
                        left -= file.write(block)
        client.upload_file(str(back), bucket, f"{task['prefix']}/back", Config=transfer)


if __name__ == "__main__":
    main()
