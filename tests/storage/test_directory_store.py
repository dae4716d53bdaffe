"""The directory store: nothing half-written shows, whatever the disk or the process does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from crc32c import crc32c

from sidecar.errors import (
    OutcomeUnknown,
    PartitionError,
    SegmentChanged,
    SettingsError,
    StoreDenied,
    StoreError,
    StoreMissing,
    StoreUnavailable,
    StoreUnsafe,
)
from sidecar.model import ObjectKey
from sidecar.ports import MIB, ObjectStore
from sidecar.storage.directory_store import DirectoryStore
from sidecar.storage.opening import open_existing, open_store
from sidecar.storage.probe import probe_store
from sidecar.storage.source import FileSource
from sidecar.store_settings import StoreSettings

KEY = ObjectKey("cluster/topic/0/x/segments/00000000000000000000-aaaaaaaaaaaaaaaaaaaaaa.log")

FILL = """
import resource, sys
from pathlib import Path
from sidecar.errors import StoreUnavailable
from sidecar.storage.source import BytesSource
from sidecar.storage.directory_store import DirectoryStore
store = DirectoryStore(Path(sys.argv[1]))
if sys.argv[2:] == ["limit"]:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
store.put_if_absent("small", b"fits")
for create in (lambda: store.upload("a/big", BytesSource(bytes(5 << 20))), lambda: store.put_if_absent("a/put", bytes(5 << 20))):
    try:
        create()
    except StoreUnavailable as error:
        print(error)
print([facts.key for facts in store.list("")], list(store.unfinished_uploads("")))
store.upload("after", BytesSource(bytes(1 << 19)))
print([facts.key for facts in store.list("")])
"""


def filled(command: list[str], **variables: str) -> tuple[str, str]:
    """What two writes got that had no room; nothing is left of them, and a smaller one goes."""
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    first, second, listed, after = done.stdout.splitlines()
    assert listed == "['small'] []"
    assert after == "['after', 'small']"
    return first, second


def test_a_full_disk_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    allowed = subprocess.run(["unshare", "--mount", "--map-root-user", "true"], capture_output=True, check=False)
    if allowed.returncode != 0:
        pytest.skip("mounting a small file system needs user namespaces, which this machine does not allow")
    mount = f'mount -t tmpfs -o size=2m tmpfs {tmp_path} && exec {sys.executable} -c "$PROGRAM" {tmp_path}/archive'
    first, second = filled(["unshare", "--mount", "--map-root-user", "sh", "-c", mount], PROGRAM=FILL)
    assert "create a/big at file://" in first
    assert "No space left on device; no part of the object was kept. Free space on the archive's file system" in first
    assert "a/put" in second


def test_a_file_size_limit_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    first, second = filled([sys.executable, "-c", FILL, str(tmp_path / "archive"), "limit"])
    assert "File too large" in first
    assert "File too large" in second


def test_a_failing_source_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "segment.log"
    source.write_bytes(bytes(9 * MIB))
    store = DirectoryStore(tmp_path / "archive")
    with (
        source.open("rb") as file,
        pytest.raises(SegmentChanged, match=r"segment\.log: ends at byte 9437184 but had 10000000"),
    ):
        store.upload(KEY, FileSource(file.fileno(), 10_000_000, source.name))
    assert [path for path in (tmp_path / "archive").rglob("*") if path.is_file()] == []


def test_a_source_that_cannot_be_read_stops_the_partition_only(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(PartitionError, match=r"a directory, at byte 0: cannot be read: Is a directory"):
            FileSource(descriptor, 10, "a directory").read_at(0, 10)
    finally:
        os.close(descriptor)


def test_a_read_only_archive_is_denied_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As root no mode bit denies anything, so the system call is made to answer as it does to others.
    def denied(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    store = DirectoryStore(tmp_path)
    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(StoreDenied, match="Permission denied; give this process's user permission"):
        store.put_if_absent(ObjectKey("a"), b"")


def test_a_root_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="is not a directory"):
        DirectoryStore(tmp_path / "file")


def test_a_key_below_an_object_is_an_error(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.put_if_absent(ObjectKey("a"), b"1")
    for name in ("a/b", "a/b/c"):
        with pytest.raises(StoreError, match="a file exists where"):
            store.put_if_absent(ObjectKey(name), b"2")
        assert store.head(ObjectKey(name)) is None
    assert [facts.key for facts in store.list("")] == ["a"]


def test_without_hard_links_the_store_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", unsupported)
    store = DirectoryStore(tmp_path)
    with pytest.raises(StoreUnsafe, match="no hard links"):
        probe_store(store)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_directory_that_cannot_be_synced_leaves_the_put_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DirectoryStore(tmp_path)
    synced = []

    def fails_for_the_directory(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 2:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fails_for_the_directory)
    with pytest.raises(OutcomeUnknown, match="cannot be synced"):
        store.put_if_absent(ObjectKey("a"), b"body")
    assert store.read(ObjectKey("a")) == b"body"


KILLED = """
import os, signal, sys
from pathlib import Path
from sidecar.storage.directory_store import DirectoryStore

class Fatal:
    size_bytes = 20 << 20
    def read_at(self, position, size_bytes):
        if position >= 8 << 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return bytes(size_bytes)

DirectoryStore(Path(sys.argv[1])).upload("topic/0/segments/killed.log", Fatal())
"""


def test_a_killed_upload_shows_only_as_unfinished(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, timeout=300, check=False)
    assert done.returncode == -9, done.stderr
    store = DirectoryStore(tmp_path)
    assert list(store.list("")) == []
    assert list(store.list_folders("")) == []
    (unfinished,) = store.unfinished_uploads("topic/0/seg")
    assert unfinished.key == "topic/0/segments/killed.log"
    assert list(store.unfinished_uploads("topic/1/")) == []
    store.put_if_absent(unfinished.key, b"second attempt")
    store.abort_upload(unfinished)
    store.abort_upload(unfinished)
    assert list(store.unfinished_uploads("")) == []
    assert store.read(unfinished.key) == b"second attempt"


def test_files_of_others_beside_the_archive_are_no_reason_to_fail(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.put_if_absent(ObjectKey("a/b"), b"1")
    (tmp_path / "lost+found").mkdir()
    (tmp_path / "a" / "dangling").symlink_to(tmp_path / "nowhere")
    assert [facts.key for facts in store.list("")] == ["a/b"]
    assert list(store.list_folders("")) == ["a"]
    assert store.head(ObjectKey("a")) is None


def opened(url: str) -> ObjectStore:
    return open_store(StoreSettings(url=url))


def test_urls_choose_the_adapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert opened(str(tmp_path / "with space")).url == f"{tmp_path.as_uri()}/with%20space"
    assert opened(f"{tmp_path.as_uri()}/with%20space").url == f"{tmp_path.as_uri()}/with%20space"
    assert opened("./archive").url == f"{tmp_path.as_uri()}/archive"
    opened("./archive").put_if_absent(ObjectKey("k"), b"v")
    assert (tmp_path / "archive" / "k").read_bytes() == b"v"
    assert opened("s3://bucket/prefix/").url == "s3://bucket/prefix"


@pytest.mark.parametrize(
    "url",
    [
        *("nosuchprotocol://x", "http://127.0.0.1:1/x", "https://127.0.0.1:1/x", "zip:///a.zip"),
        *(
            "simplecache::file:///tmp/x",
            "dir:///tmp/x",
            "reference://x",
            "git:///tmp",
            "jupyter://127.0.0.1:1/",
            "memory://x",
        ),
    ],
)
def test_urls_that_lead_nowhere_are_settings_errors(url: str) -> None:
    with pytest.raises(SettingsError):
        opened(url)


def test_a_directory_archive_loads_no_s3_client() -> None:
    program = (
        "import sys\nfrom sidecar.storage.opening import open_store\nfrom sidecar.storage.probe import probe_store\n"
        "from sidecar.store_settings import StoreSettings\n"
        "import tempfile\nwith tempfile.TemporaryDirectory() as d: probe_store(open_store(StoreSettings(url=d)))\n"
        "print([m for m in ('boto3', 'botocore', 'fsspec', 'numba', 'pyspark') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.strip() == "[]"


def test_the_bytes_arrive_through_a_real_file(tmp_path: Path) -> None:
    body = Random(7).randbytes(5 * MIB + 3)
    (tmp_path / "f").write_bytes(body)
    store = DirectoryStore(tmp_path / "archive")
    with (tmp_path / "f").open("rb") as file:
        sent_crc32c = store.upload(KEY, FileSource(file.fileno(), len(body)))
    assert sent_crc32c == crc32c(body)
    assert store.read(KEY) == body


def test_a_server_of_another_protocol_that_is_not_there_is_a_store_error() -> None:
    with pytest.raises(StoreUnavailable, match="Connection refused"):
        opened("ftp://127.0.0.1:1/x")
    store = opened("webhdfs://127.0.0.1:1/x")
    for use in (lambda: list(store.list("")), lambda: store.head(ObjectKey("a")), lambda: store.read(ObjectKey("a"))):
        with pytest.raises(StoreUnavailable, match="webhdfs"):
            use()
    with pytest.raises(OutcomeUnknown, match="webhdfs"):
        store.put_if_absent(ObjectKey("a/b"), b"")


def test_only_readers_miss_a_directory_that_is_not_there(tmp_path: Path) -> None:
    settings = StoreSettings(url=str(tmp_path / "typo"))
    with pytest.raises(StoreMissing, match=r"typo: there is no such directory"):
        open_existing(settings)
    open_store(settings).put_if_absent(ObjectKey("a/b"), b"1")
    assert open_existing(settings).read(ObjectKey("a/b")) == b"1"


def test_what_is_deleted_leaves_no_empty_directories(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    put = [ObjectKey(name) for name in ("a/b/c", "a/d", "e/f/g")]
    for key in put:
        store.put_if_absent(key, b"")
    store.delete([put[0], put[2]])
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "d"]
    store.put_if_absent(put[0], b"again")
    probe_store(store)
    assert not (tmp_path / "_probe").exists()


def test_a_directory_removed_while_it_is_written_to_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, opens, really = DirectoryStore(tmp_path), [], os.open

    def pruned(path: Path, *arguments: int) -> int:
        if str(path).endswith(".uploading") and not opens:
            opens.append(path)
            path.parent.rmdir()
        return really(path, *arguments)

    monkeypatch.setattr(os, "open", pruned)
    store.put_if_absent(ObjectKey("a/b"), b"body")
    assert opens
    assert store.read(ObjectKey("a/b")) == b"body"
