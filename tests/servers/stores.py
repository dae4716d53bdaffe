"""The S3 servers that the program is tested against: where each comes from, how it starts, and what it can do."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.servers.dist import cargo_binary, go_binary, python_program, server_libs, tool
from tests.servers.process import free_port
from tests.servers.s3_server import S3Server
from tests.servers.versitygw import VersityGateway

_JAVA = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True)
class StoreKind:
    """A server and what it can do. Tests compare each of the capabilities with the server itself."""

    name: str
    version: str
    source: str
    """Registry and name, as docs/reference/object-stores.md shows them."""
    start: Callable[[Path], S3Server]
    """Makes it; the directory is its own."""
    in_gate: bool = False
    """Tested by `make test`, else by `make store-matrix` alone."""
    one_writer_wins: bool = True
    """Of several create-only puts at once. Otherwise the program must refuse the store."""
    checks_keys: bool = True
    """Refuses a wrong secret key."""
    finds_missing_bucket: bool = True
    """Answers NoSuchBucket instead of making the bucket."""
    lists_unfinished_uploads: bool = True
    """Otherwise the request is answered with NotImplemented."""
    lists_them_by_prefix: bool = True
    """Otherwise only by the whole key of an object."""
    whole_crc: bool = True
    """Reports a CRC-32C of the whole object after a multipart upload."""

    def __str__(self) -> str:
        return self.name


class S3Proxy(S3Server):
    """S3Proxy with jclouds' second file system backend."""

    def __init__(self, directory: Path) -> None:
        super().__init__("s3proxy", directory)

    def command(self) -> list[str]:
        """See S3Server."""
        objects = self.directory / "objects"
        objects.mkdir(exist_ok=True)
        properties = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": self.access_key,
            "s3proxy.credential": self.secret_key,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(objects),
        }
        file = self.directory / "s3proxy.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        (jar,) = server_libs("s3proxy").glob("*.jar")
        return [tool("java"), *_JAVA, "-jar", str(jar), "--properties", str(file)]


class MiniStack(S3Server):
    """Emulates many AWS services in one process; objects are in its memory."""

    def __init__(self, directory: Path) -> None:
        super().__init__("ministack", directory)

    def command(self) -> list[str]:
        """See S3Server."""
        return [str(python_program("ministack"))]

    def environment(self) -> Mapping[str, str]:
        """See S3Server."""
        return {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(self.port), "TMPDIR": str(self.directory)}


class MinIO(S3Server):
    """One drive. Without the console, which would listen on a port of its own."""

    def __init__(self, directory: Path) -> None:
        super().__init__("minio", directory)

    def command(self) -> list[str]:
        """See S3Server."""
        address = ["--address", f"127.0.0.1:{self.port}", "--console-address", f"127.0.0.1:{free_port()}"]
        return [str(go_binary("minio")), "server", *address, str(self.directory / "objects")]

    def environment(self) -> Mapping[str, str]:
        """See S3Server."""
        keys = {"MINIO_ROOT_USER": self.access_key, "MINIO_ROOT_PASSWORD": self.secret_key}
        return {**keys, "MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}


class Rclone(S3Server):
    """`rclone serve s3` over a directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__("rclone", directory)

    def command(self) -> list[str]:
        """See S3Server."""
        objects = self.directory / "objects"
        objects.mkdir(exist_ok=True)
        keys = f"{self.access_key},{self.secret_key}"
        address = ["--addr", f"127.0.0.1:{self.port}", "--auth-key", keys]
        return [str(go_binary("rclone")), "serve", "s3", *address, "--config", os.devnull, str(objects)]


class GoFakeS3(S3Server):
    """Objects are in its memory. It checks no keys."""

    def __init__(self, directory: Path) -> None:
        super().__init__("gofakes3", directory)

    def command(self) -> list[str]:
        """See S3Server."""
        return [str(go_binary("gofakes3")), "-quiet", "-backend", "memory", "-host", f"127.0.0.1:{self.port}"]


class S3Mock(S3Server):
    """Adobe's. It checks no keys, and parts have at most 10 MB."""

    def __init__(self, directory: Path) -> None:
        super().__init__("s3mock", directory)

    def command(self) -> list[str]:
        """See S3Server."""
        objects = self.directory / "objects"
        objects.mkdir(exist_ok=True)
        program = Path(__file__).parent / "S3MockOnLoopback.java"
        java = [tool("java"), *_JAVA, "-cp", f"{server_libs('s3mock')}/*", str(program)]
        address = ["--server.ssl.enabled=false", "--server.address=127.0.0.1", f"--server.port={self.port}"]
        return [*java, *address, "--http.port=0", f"--com.adobe.testing.s3mock.store.root={objects}"]


class S3sFs(S3Server):
    """The example server of the Rust library s3s, over a directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__("s3s-fs", directory)

    def command(self) -> list[str]:
        """See S3Server."""
        objects = self.directory / "objects"
        objects.mkdir(exist_ok=True)
        address = ["--host", "127.0.0.1", "--port", str(self.port)]
        keys = ["--access-key", self.access_key, "--secret-key", self.secret_key]
        return [str(cargo_binary("s3s-fs")), *address, *keys, str(objects)]


STORES = (
    StoreKind(
        "versitygw",
        "1.8.0",
        "Go: github.com/versity/versitygw",
        lambda directory: VersityGateway(directory, options=["--quiet"]),
        in_gate=True,
    ),
    StoreKind("S3Proxy", "4.1.0", "Maven: org.gaul:s3proxy", S3Proxy, in_gate=True),
    StoreKind("MiniStack", "1.5.33", "PyPI: ministack", MiniStack, in_gate=True, checks_keys=False, whole_crc=False),
    StoreKind("MinIO", "2026-02-12", "Go: github.com/minio/minio", MinIO, lists_them_by_prefix=False),
    StoreKind("rclone", "1.76.0", "Go: github.com/rclone/rclone", Rclone, whole_crc=False),
    StoreKind(
        "gofakes3", "1.2.0", "Go: github.com/johannesboyne/gofakes3", GoFakeS3, checks_keys=False, whole_crc=False
    ),
    StoreKind("S3Mock", "5.2.0", "Maven: com.adobe.testing:s3mock", S3Mock, one_writer_wins=False, checks_keys=False),
    StoreKind(
        "s3s-fs",
        "0.14.1",
        "crates.io: s3s-fs",
        S3sFs,
        one_writer_wins=False,
        finds_missing_bucket=False,
        lists_unfinished_uploads=False,
        lists_them_by_prefix=False,
        whole_crc=False,
    ),
)


def chosen_stores(*, one_writer_wins: bool | None = None) -> list[StoreKind]:
    """Those of the gate, or those that STORE_MATRIX names, separated by commas; `all` for all. Of both sorts, or of one."""
    wanted = os.environ.get("STORE_MATRIX", "")
    by_name = {kind.name: kind for kind in STORES}
    names = by_name if wanted == "all" else wanted.split(",") if wanted else [k.name for k in STORES if k.in_gate]
    kinds = [by_name[name] for name in names]
    return [kind for kind in kinds if one_writer_wins in {None, kind.one_writer_wins}]


if __name__ == "__main__":
    ours = chosen_stores()
    print(f"S3 servers: {', '.join(map(str, ours))}")
    print(f"Left to make store-matrix: {', '.join(kind.name for kind in STORES if kind not in ours)}")
