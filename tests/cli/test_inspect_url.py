"""`inspect` of files at URLs, on a real S3 server by way of s3fs: the same output as of local files, errors that say what to do."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from botocore.exceptions import ClientError

from sidecar.errors import StoreUnsupported
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.model import ObjectKey
from sidecar.ports import MIB
from sidecar.storage.opening import open_file
from sidecar.storage.source import BytesSource
from sidecar.store_settings import StoreSettings
from tests.cli.running import Outcome, environment, in_this_process
from tests.fakes.manual_clock import ManualClock
from tests.golden import golden
from tests.servers.certificates import Authority
from tests.servers.s3_server import ACCESS_KEY, REGION, SECRET_KEY
from tests.servers.versitygw import VersityGateway

PARTITION = "transactions-0"


class TlsGateway(VersityGateway):
    """versitygw behind TLS, with a certificate of an authority that no system knows."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "authority")
        certificate = self.authority.issue("store", "IP:127.0.0.1")
        super().__init__(
            directory, options=["--quiet", "--cert", str(certificate.chain), "--key", str(certificate.key)]
        )

    @property
    def endpoint(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def client(self, endpoint: str | None = None) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AWS_CA_BUNDLE", str(self.authority.ca_file))
            return super().client(endpoint)


class Site:
    """A bucket with the files of a partition, an archive of a log dir, and both of them in zip files."""

    def __init__(self, directory: Path, gateway: VersityGateway) -> None:
        self.directory = directory
        self.url = f"s3://{gateway.bucket}"
        self.endpoint = gateway.endpoint
        self.partition = golden("3.9.1") / "logs" / PARTITION
        self.archive = f"{self.url}/kafka/archive"
        place = ["--log-dir", self.partition.parent, "--archive", self.archive, "--topic", "orders"]
        done = self.run("backfill", *place, "--assume-leader", "--state-dir", directory / "state")
        assert done.code == 0, done.err
        copied = directory / "files.zip"
        archived = directory / "archive.zip"
        with (
            closing(gateway.client()) as client,
            zipfile.ZipFile(copied, "w") as files,
            zipfile.ZipFile(archived, "w") as zipped,
        ):
            for path in self.partition.iterdir():
                client.upload_file(str(path), gateway.bucket, f"copy/{PARTITION}/{path.name}")
                files.write(path, f"copy/{PARTITION}/{path.name}")
            self.keys = [
                str(found["Key"]).removeprefix("kafka/archive/")
                for found in client.list_objects_v2(Bucket=gateway.bucket, Prefix="kafka/archive/")["Contents"]
            ]
            for key in self.keys:
                body = client.get_object(Bucket=gateway.bucket, Key=f"kafka/archive/{key}")["Body"].read()
                zipped.writestr(f"kafka/archive/{key}", body)
            damaged = min(self.partition.glob("*.log")).read_bytes()[:-7]
            client.put_object(Bucket=gateway.bucket, Key=f"damaged/{0:020d}.log", Body=damaged)
        with closing(gateway.client()) as client:
            client.upload_file(str(copied), gateway.bucket, "files.zip")
            client.upload_file(str(archived), gateway.bucket, "archive.zip")

    def run(self, *arguments: str | Path, **s3: Any) -> Outcome:
        """A command with the settings of the store, of which `s3` are others."""
        keys = {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
        settings = {"endpoint_url": self.endpoint, "region": REGION, "addressing_style": "path", **keys, **s3}
        kept = {name: value for name, value in settings.items() if value is not None}
        file = self.directory / "settings.yaml"
        file.write_text(yaml.safe_dump({"store": {"retry": {"attempts": 2, "wait_s_first": 0.01}, "s3": kept}}))
        return in_this_process("--config", file, *arguments)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    with VersityGateway(directory / "gateway", options=["--quiet"]) as gateway:
        yield Site(directory, gateway)


@pytest.fixture(autouse=True)
def _no_keys_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))


@pytest.mark.real
@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        (
            "{url}/copy/",
            "",
            (
                "*.log",
                "*.index",
                "*.timeindex",
                "*.txnindex",
                "*.snapshot",
                "leader-epoch-checkpoint",
                "partition.metadata",
            ),
        ),
        ("zip://copy/", "::{url}/files.zip", ("*.log", "*.snapshot")),
        ("file://{logs}/", "", ("*.log", "*.snapshot")),
    ],
    ids=["s3", "zip", "file"],
)
def test_every_kind_of_file_is_shown_as_it_is_from_the_local_disk(
    site: Site, before: str, after: str, names: tuple[str, ...]
) -> None:
    places = {"url": site.url, "logs": site.partition.parent}
    for name in names:
        path = max(site.partition.glob(name), key=lambda path: path.stat().st_size)
        detail = ["--json", *(["--records"] if path.suffix == ".log" else [])]
        remote = site.run("inspect", f"{before}{PARTITION}/{path.name}{after}".format(**places), *detail)
        assert (remote.code, remote.out) == (0, in_this_process("inspect", path, *detail).out), remote.err
        assert remote.out


@pytest.mark.real
@pytest.mark.parametrize("ending", [".log", ".indexes", ".json"])
def test_an_object_of_an_archive_is_shown_by_its_url_or_by_its_key(site: Site, ending: str) -> None:
    key = min(key for key in site.keys if key.endswith(ending))
    by_key = site.run("inspect", "--archive", site.archive, key, "--json")
    by_url = site.run("inspect", f"{site.archive}/{key}", "--json")
    assert by_key.code == by_url.code == 0, by_key.err + by_url.err
    assert by_key.out == by_url.out != ""
    missing = site.run(
        "inspect", "--archive", site.archive, key.replace(ending, f"0{ending}").replace("0000", "0001", 1)
    )
    assert missing.code in {2, 6}


@pytest.mark.real
def test_a_zipped_archive_in_a_bucket_is_shown_and_verified_where_it_lies(site: Site) -> None:
    zipped = f"zip://kafka/archive::{site.url}/archive.zip"
    there = site.run("status", "--archive", site.archive, "--json")
    here = site.run("status", "--archive", zipped, "--json")
    assert (here.code, here.out) == (0, there.out), here.err
    assert len(here.lines()) > 1
    verified = site.run("verify", "--deep", "--archive", zipped, "--json")
    assert verified.code == 0, verified.err
    assert {row["topic"] for row in verified.lines()} == {row["topic"] for row in there.lines()}


@pytest.mark.real
def test_entries_before_a_damaged_place_are_shown_and_the_place_is_named(site: Site) -> None:
    url = f"{site.url}/damaged/{0:020d}.log"
    outcome = site.run("inspect", url, "--json")
    assert outcome.code == 3
    assert len(outcome.lines()) > 1
    assert url in outcome.err
    assert "at byte" in outcome.err


@pytest.mark.real
@pytest.mark.parametrize(
    ("path", "s3", "code", "says"),
    [
        ("copy/00000000000000000001.log", {}, 6, "no such object at {url}/copy; correct the URL"),
        ("copy/", {}, 2, "does not name a file"),
        ("copy/notes.txt", {}, 2, "this kind of file cannot be inspected"),
        ("copy/x.index", {}, 2, "--base-offset"),
        (f"copy/{PARTITION}/{0:020d}.log", {"secret_access_key": "wrong"}, 6, "check the credentials"),
        (
            f"copy/{PARTITION}/{0:020d}.log",
            {"access_key_id": None, "secret_access_key": None},
            6,
            "Unable to locate credentials; check the credentials",
        ),
        (f"copy/{PARTITION}/{0:020d}.log", {"endpoint_url": "http://127.0.0.1:1"}, 6, "check store.s3.endpoint_url"),
        (f"copy/{PARTITION}/{0:020d}.log", {"profile": "nobody"}, 2, "profile (nobody) could not be found"),
        (f"copy/{PARTITION}/{0:020d}.log", {"ca_file": "/none.pem"}, 2, "store.s3.ca_file /none.pem cannot be read"),
    ],
)
def test_an_error_says_what_to_do(site: Site, path: str, s3: dict[str, Any], code: int, says: str) -> None:
    outcome = site.run("inspect", f"{site.url}/{path}", **s3)
    assert outcome.code == code, outcome.err
    assert says.format(url=site.url) in outcome.err
    assert outcome.err.count("\n") == 1
    assert SECRET_KEY not in outcome.err


@pytest.mark.real
def test_a_bucket_that_is_not_there_is_named(site: Site) -> None:
    outcome = site.run("inspect", "s3://no-such-bucket/00000000000000000000.log")
    assert outcome.code == 6
    assert "create the bucket or correct the store's url" in outcome.err or "no-such-bucket" in outcome.err


@pytest.mark.real
def test_the_store_s_authority_is_trusted_and_no_other(site: Site, tmp_path: Path) -> None:
    log = min(site.partition.glob("*.log"))
    with TlsGateway(tmp_path / "tls") as gateway:
        with closing(gateway.client()) as client:
            client.upload_file(str(log), gateway.bucket, log.name)
        url = f"s3://{gateway.bucket}/{log.name}"
        ca_file = str(gateway.authority.ca_file)
        trusted = site.run("inspect", url, "--json", endpoint_url=gateway.endpoint, ca_file=ca_file)
        unchecked = site.run("inspect", url, "--json", endpoint_url=gateway.endpoint, verify_tls=False)
        refused = site.run("inspect", url, "--json", endpoint_url=gateway.endpoint)
    assert trusted.code == unchecked.code == 0, trusted.err + unchecked.err
    assert trusted.out == unchecked.out == in_this_process("inspect", log, "--json").out
    assert refused.code == 6
    assert "set store.s3.ca_file" in refused.err


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("gopher://host/00000000000000000000.log", "Protocol not known: gopher"),
        ("gs://bucket/00000000000000000000.log", "install gcsfs"),
        ("file://host/00000000000000000000.log", "three slashes"),
        ("s3://user:word@bucket/00000000000000000000.log", "must not carry credentials"),
    ],
)
def test_what_cannot_be_opened_is_a_wrong_argument(url: str, says: str) -> None:
    outcome = in_this_process("inspect", url)
    assert outcome.code == 2
    assert says in outcome.err


def test_a_signed_web_address_is_read_and_its_signature_is_never_shown(tmp_path: Path) -> None:
    log = min((golden("3.9.1") / "logs" / PARTITION).glob("*.log"))
    with web_server(log.parent) as address:
        shown = in_this_process("inspect", f"{address}/{log.name}?signature=a/secret", "--json")
        missing = in_this_process("inspect", f"{address}/{1:020d}.log?signature=a/secret")
    assert (shown.code, shown.out) == (0, in_this_process("inspect", log, "--json").out), shown.err
    assert missing.code == 6
    assert "secret" not in missing.err


def test_a_web_server_that_ignores_ranges_is_refused_and_its_file_is_not_called_damaged(tmp_path: Path) -> None:
    log = tmp_path / f"{0:020d}.log"
    batches = [build_batch([Record(number, 5, b"key", bytes(MIB))]) for number in range(12)]
    log.write_bytes(b"".join(batches))
    with web_server(tmp_path) as address:
        outcome = in_this_process("inspect", f"{address}/{log.name}")
    assert outcome.code == 6
    assert "the server ignores range requests. Download the file" in outcome.err
    assert "replica" not in outcome.err


class Quiet(SimpleHTTPRequestHandler):
    """Python's own web server: it ignores ranges."""

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class's own name
        """Says nothing."""


class WithoutSizes(Quiet):
    def send_header(self, keyword: str, value: str) -> None:
        if keyword != "Content-Length":
            super().send_header(keyword, value)


class Refusing(Quiet):
    status: ClassVar[int]

    def send_head(self) -> None:
        self.send_error(self.status)


def test_a_file_of_unknown_size_is_refused_and_not_empty() -> None:
    log = min((golden("3.9.1") / "logs" / PARTITION).glob("*.log"))
    with web_server(log.parent, WithoutSizes) as address:
        outcome = in_this_process("inspect", f"{address}/{log.name}")
    assert (outcome.code, outcome.out) == (6, "")
    assert "the server does not say how large it is; download the file" in outcome.err


def test_a_web_server_that_cannot_be_reached_is_not_a_missing_file() -> None:
    outcome = in_this_process("inspect", f"http://127.0.0.1:1/{0:020d}.log?signature=a/secret")
    assert outcome.code == 6
    assert "the server cannot be reached" in outcome.err
    assert "check the URL and the network" in outcome.err
    assert "no such object" not in outcome.err
    assert "secret" not in outcome.err


@pytest.mark.parametrize(
    ("status", "says"),
    [(404, "no such object"), (410, "no such object"), (403, "give permission to read"), (503, "try again later")],
)
def test_what_a_web_server_answers_is_said(
    status: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Refusing, "status", status, raising=False)
    with web_server(tmp_path, Refusing) as address:
        outcome = in_this_process("inspect", f"{address}/{0:020d}.log?signature=a/secret")
    assert outcome.code == 6
    assert says in outcome.err
    assert "secret" not in outcome.err


@contextmanager
def web_server(directory: Path, handler: type[Quiet] = Quiet) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(directory)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def busy() -> OSError:
    answer: Any = {"Error": {"Code": "SlowDown", "Message": "slower"}, "ResponseMetadata": {"HTTPStatusCode": 503}}
    error = OSError("slower")
    error.__cause__ = ClientError(answer, "GetObject")
    return error


def test_a_busy_store_is_asked_again_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    from s3fs import S3FileSystem

    answers: list[Any] = [busy(), busy(), b"content"]

    def cat_file(files: Any, path: str, start: int, end: int) -> bytes:
        assert (path, start, end, files.retries) == ("bucket/a/b.log", 0, 9, 1)
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return bytes(answer)

    monkeypatch.setattr(S3FileSystem, "cat_file", cat_file)
    clock = ManualClock()
    settings = StoreSettings.model_validate({"url": "s3://bucket/a/b.log", "retry": {"attempts": 3}})
    store, key = open_file(settings, clock)
    assert store.read(key, 0, 9) == b"content"
    assert clock.monotonic_s() > 0


def test_what_was_opened_to_be_read_is_never_written() -> None:
    store, _ = open_file(StoreSettings(url="s3://bucket/a/b.log"))
    for attempt in (
        partial(store.put_if_absent, ObjectKey("x"), b""),
        partial(store.upload, ObjectKey("x"), BytesSource(b"")),
        partial(store.delete, [ObjectKey("x")]),
    ):
        with pytest.raises(StoreUnsupported, match="is open for reading only"):
            attempt()


def test_whole_archives_on_s3_are_read_without_s3fs() -> None:
    program = (
        "import sys, json\n"
        "from sidecar.storage.opening import open_archive_to_read, open_file\n"
        "from sidecar.store_settings import StoreSettings\n"
        "settings = StoreSettings(url='s3://bucket/a/b.log')\n"
        "names = ('botocore', 'fsspec', 's3fs')\n"
        "open_archive_to_read(settings); print(json.dumps([name in sys.modules for name in names]))\n"
        "open_file(settings); print(json.dumps([name in sys.modules for name in names]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment()
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[True, False, False], [True, True, True]]
