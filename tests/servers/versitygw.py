"""versitygw: a real S3 server over a directory. With `nometa=True` it is a store that ignores `If-None-Match`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.servers.dist import go_binary, go_module_programs
from tests.servers.s3_server import S3Server


class VersityGateway(S3Server):
    """One gateway with one bucket. Objects are the files below `directory / "objects"`."""

    def __init__(
        self,
        directory: Path,
        *,
        nometa: bool = False,
        bucket: str = "archive",
        options: Sequence[str] = (),
        optimised: bool = False,
    ) -> None:
        self.objects = directory / "objects"
        self.objects.mkdir(parents=True, exist_ok=True)
        self._nometa = nometa
        self._options = options
        self._program = go_binary("versitygw", optimised=optimised)
        super().__init__("versitygw", directory, bucket)

    def command(self) -> list[str]:
        """See S3Server."""
        address = ["--port", f"127.0.0.1:{self.port}", "--region", self.region]
        metadata = ["--nometa"] if self._nometa else _metadata_options(self.directory)
        return [str(self._program), *address, *self._options, "posix", *metadata, str(self.objects)]

    def environment(self) -> Mapping[str, str]:
        """See S3Server."""
        return {"ROOT_ACCESS_KEY": self.access_key, "ROOT_SECRET_KEY": self.secret_key}


def racy_program() -> Path:
    """Of the last version whose create-only puts are not atomic: of two at once both may succeed. Raises ServerError."""
    return go_module_programs("versitygw-racy") / "versitygw"


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
