"""One S3 server as a child process with one bucket: what all kinds of servers have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from tests.servers.process import Server, ServerProcess, free_port, port_answers

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

ACCESS_KEY = "test-access-key"
SECRET_KEY = "test-secret-key"
REGION = "us-east-1"
_START_TIMEOUT_S = 120.0


class S3Server(Server):
    """A context manager. It may be stopped, killed and started again: port, keys and objects stay."""

    access_key = ACCESS_KEY
    secret_key = SECRET_KEY
    region = REGION

    def __init__(self, name: str, directory: Path, bucket: str = "archive") -> None:
        """Args: directory: for the log and the objects."""
        self.bucket = bucket
        self.port = free_port()
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.process = ServerProcess(name, self.command(), directory / f"{name}.log", self.environment())
        self._has_bucket = False

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Starts it on 127.0.0.1:`port`, with its objects below `directory`. Files that it needs are brought and written here."""

    def environment(self) -> Mapping[str, str]:
        """Variables that it needs."""
        return {}

    def change_keys(self, access_key: str, secret_key: str) -> None:
        """Start again with these keys, which are the only ones from now on."""
        self.process.kill()
        self.access_key, self.secret_key = access_key, secret_key
        self.process = ServerProcess(self.process.name, self.command(), self.process.log_path, self.environment())
        self.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, endpoint: str | None = None) -> S3Client:
        """A boto3 client with this server's keys; `endpoint` names a proxy in front of it."""
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
        """Starts, waits until it answers, and makes the bucket the first time. Raises ServerError with the tail of its log."""
        self.process.launch()
        self.process.wait_until(self._is_ready, _START_TIMEOUT_S)

    def close(self) -> None:
        """Ends it by force: nothing in it needs a clean stop, and a test may have stopped it with SIGSTOP."""
        self.process.kill()

    def _is_ready(self) -> bool:
        """Some servers listen before they can serve."""
        if not port_answers(self.port):
            return False
        if self._has_bucket:
            return True
        with closing(self.client()) as client:
            try:
                client.create_bucket(Bucket=self.bucket)
            except ClientError as error:
                self._has_bucket = error.response["Error"]["Code"].startswith("BucketAlready")
            except BotoCoreError:
                pass
            else:
                self._has_bucket = True
        return self._has_bucket
