"""versitygw: a real S3 server over a directory. With `nometa=True` it is a store that ignores `If-None-Match`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.servers.dist import go_binary
from tests.servers.process import Server, ServerProcess, free_port, port_answers

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_START_TIMEOUT_S = 120.0


class VersityGateway(Server):
    """One gateway with one bucket; a context manager. Objects are the files below `directory / "objects"`.

    It may be stopped, killed and started again: port, keys and objects stay.
    """

    def __init__(
        self, directory: Path, *, nometa: bool = False, bucket: str = "archive", options: Sequence[str] = ()
    ) -> None:
        self.access_key = "test-access-key"
        self.secret_key = "test-secret-key"
        self.region = "us-east-1"
        self.bucket = bucket
        self.port = free_port()
        self.objects = directory / "objects"
        self.objects.mkdir(parents=True, exist_ok=True)
        keys = {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}
        command = [str(go_binary("versitygw")), "--port", f"127.0.0.1:{self.port}", "--region", self.region, *options]
        command += ["posix", *(["--nometa"] if nometa else _metadata_options(directory)), str(self.objects)]
        self.process = ServerProcess("versitygw", command, directory / "versitygw.log", keys)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, endpoint: str | None = None) -> S3Client:
        """A boto3 client with this gateway's keys; `endpoint` names a proxy in front of it."""
        import boto3
        from botocore.config import Config

        return boto3.client(
            "s3",
            endpoint_url=endpoint or self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
        )

    def start(self) -> None:
        """Starts, waits until it listens, and makes the bucket the first time. Raises ServerError with the tail of its log."""
        self.process.launch()
        self.process.wait_until(lambda: port_answers(self.port), _START_TIMEOUT_S)
        if not (self.objects / self.bucket).exists():
            client = self.client()
            client.create_bucket(Bucket=self.bucket)
            client.close()

    def close(self) -> None:
        """Ends it by force: nothing in it needs a clean stop, and a test may have stopped it with SIGSTOP."""
        self.process.kill()


def _metadata_options(directory: Path) -> list[str]:
    """Metadata live in extended attributes, or beside the objects where the file system has none (some tmpfs)."""
    with tempfile.NamedTemporaryFile(dir=directory) as probe:
        try:
            os.setxattr(probe.name, "user.probe", b"1")
        except OSError:
            sidecar = directory / "metadata"
            sidecar.mkdir(exist_ok=True)
            return ["--sidecar", str(sidecar)]
    return []
