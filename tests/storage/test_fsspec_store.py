"""fsspec file systems that fail, and those that cannot create exclusively."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sidecar.errors import ObjectExists, OutcomeUnknown, SegmentChanged, StoreUnsafe
from sidecar.model import ObjectKey
from sidecar.ports import MIB
from sidecar.randomness import SystemRandomness
from sidecar.storage import BytesSource, FileSource, probe_store
from sidecar.storage.fsspec_store import FsspecStore

KEY = ObjectKey("a/b")


@pytest.fixture
def memory() -> FsspecStore:
    return FsspecStore(f"memory://{SystemRandomness().random_bytes(8).hex()}")


def test_an_upload_that_fails_shows_nothing_in_memory(memory: FsspecStore, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(5 * MIB))
    with (tmp_path / "f").open("rb") as file, pytest.raises(SegmentChanged):
        memory.upload(KEY, FileSource(file.fileno(), 6 * MIB))
    assert list(memory.list("")) == []


def test_the_source_s_error_is_not_hidden_by_the_cleaning_up(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(5 * MIB))
    store = FsspecStore(f"file://{tmp_path}/archive")
    with (tmp_path / "f").open("rb") as file, pytest.raises(SegmentChanged):
        store.upload(KEY, FileSource(file.fileno(), 6 * MIB))


def test_a_failed_create_never_removes_another_s_object(tmp_path: Path) -> None:
    store = FsspecStore(f"file://{tmp_path}/archive")
    store.put_if_absent(KEY, b"first")
    with pytest.raises(ObjectExists):
        store.upload(KEY, BytesSource(b"second"))
    assert store.read(KEY) == b"first"


@pytest.mark.parametrize("error", [ConnectionResetError("gone"), TimeoutError("slow"), OSError("something else")])
def test_a_lost_connection_leaves_a_create_in_doubt(
    memory: FsspecStore, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def lost(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(type(memory._files), "pipe_file", lost)
    with pytest.raises(OutcomeUnknown, match="create a/b"):
        memory.put_if_absent(KEY, b"")


def test_a_file_system_without_exclusive_create_is_refused(
    memory: FsspecStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: Any, **__: Any) -> None:
        raise NotImplementedError("mode 'xb'")

    monkeypatch.setattr(type(memory._files), "pipe_file", unsupported)
    with pytest.raises(StoreUnsafe, match="cannot create exclusively"):
        probe_store(memory)


def test_a_file_system_that_overwrites_is_refused(memory: FsspecStore, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe_file = type(memory._files).pipe_file

    def overwriting(files: Any, path: str, value: bytes, mode: str = "overwrite") -> None:
        pipe_file(files, path, value, mode="overwrite")

    monkeypatch.setattr(type(memory._files), "pipe_file", overwriting)
    with pytest.raises(StoreUnsafe, match="a second put of the same key succeeded"):
        probe_store(memory)
    assert probe_store(memory, single_writer=True).safe
