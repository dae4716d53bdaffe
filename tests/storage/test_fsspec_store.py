"""fsspec file systems that fail, and those that cannot create exclusively."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from fsspec.spec import AbstractBufferedFile

from sidecar.errors import ObjectExists, OutcomeUnknown, SegmentChanged, StoreUnsafe
from sidecar.model import ObjectKey
from sidecar.ports import MIB
from sidecar.randomness import SystemRandomness
from sidecar.storage.fsspec_store import FsspecStore
from sidecar.storage.probe import probe_store
from sidecar.storage.source import BytesSource, FileSource
from tests.storage.files_in_memory import FilesInMemory

KEY = ObjectKey("a/b")


@pytest.fixture
def memory() -> FsspecStore:
    return FilesInMemory()


def test_a_stream_of_small_chunks_takes_few_requests(memory: FsspecStore, monkeypatch: pytest.MonkeyPatch) -> None:
    body, positions, read = SystemRandomness().random_bytes(9 * MIB), list[int](), FsspecStore.read

    def watched(store: FsspecStore, key: ObjectKey, position: int = 0, size_bytes: int | None = None) -> bytes:
        positions.append(position)
        return read(store, key, position, size_bytes)

    memory.upload(KEY, BytesSource(body))
    monkeypatch.setattr(FsspecStore, "read", watched)
    chunks = list(memory.stream(KEY, MIB))
    assert [len(chunk) for chunk in chunks] == [MIB] * 9
    assert b"".join(chunks) == body
    assert positions == [0, 4 * MIB, 8 * MIB]


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


@pytest.mark.parametrize("single_writer", [False, True])
def test_a_file_system_that_shows_a_file_while_it_is_written_is_refused(single_writer: bool, tmp_path: Path) -> None:
    store = FsspecStore(f"file://{tmp_path}/archive")
    with pytest.raises(StoreUnsafe, match=r"create in one step \(an object shows .* mount the file"):
        probe_store(store, single_writer=single_writer)
    assert list(store.list("")) == []


class Buffered(AbstractBufferedFile):
    """Sends blocks on the way. They show at once, or all together at the end."""

    shows_blocks: ClassVar[bool]

    def _initiate_upload(self) -> None:
        self.blocks = b""

    def _upload_chunk(self, final: bool = False) -> bool:
        self.blocks += self.buffer.getvalue()
        if final or self.shows_blocks:
            self.fs.pipe_file(self.path, self.blocks)
        return True


@pytest.mark.parametrize("shows_blocks", [False, True])
def test_a_file_that_is_sent_in_blocks_is_looked_for_after_the_first_block(
    shows_blocks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = FsspecStore(f"memory://blocks-{shows_blocks}")
    monkeypatch.setattr(Buffered, "shows_blocks", shows_blocks, raising=False)
    files, opened = memory._files, memory._files.open

    def buffered(path: str, mode: str = "rb", **options: Any) -> Any:
        return Buffered(files, path, "wb") if mode == "xb" else opened(path, mode, **options)

    monkeypatch.setattr(files, "open", buffered)
    assert memory.shows_unfinished(KEY) is shows_blocks
    assert len(memory.read(KEY)) > 8 * MIB


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
    probe_store(memory, single_writer=True)
