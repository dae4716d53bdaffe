"""A named pipe under the name of a file that is read keeps nobody waiting, least of all the other partitions."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sidecar.broker.log_dir_state import read_log_dir_state
from sidecar.compaction.rules import CompactionRules
from sidecar.discovery.partition_directory import named_partition
from sidecar.errors import PartitionError
from sidecar.host.listed_files import open_listed
from sidecar.logformat.files import LazyFile, open_regular, read_regular
from sidecar.model import FileIdentity
from sidecar.rewriting.directory import compact_directory
from sidecar.rewriting.local_engine import LocalEngine
from sidecar.runner.archive_loop import ArchiveLoop
from sidecar.snapshots.jobs import Forgetting
from tests.descriptors import open_below
from tests.fakes.memory_store import MemoryStore
from tests.runner.rig import archived_states, copy_partitions, rounds_over, tools_for

WAIT_S = 60.0
PIPE = "a pipe, device or socket, not a regular file; move it out"


def in_time(work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()


@pytest.fixture(params=["open_regular", "read_regular", "LazyFile", "open_listed"])
def reads(request: pytest.FixtureRequest) -> Callable[[Path], object]:
    return {
        "open_regular": open_regular,
        "read_regular": read_regular,
        "LazyFile": lambda path: LazyFile(path)(0, memoryview(bytearray(1))),
        "open_listed": lambda path: open_listed(FileIdentity.of(path.parent, path.name, path.stat())),
    }[str(request.param)]


def test_a_pipe_is_refused_at_once_and_leaves_no_descriptor(tmp_path: Path, reads: Callable[[Path], object]) -> None:
    path = tmp_path / f"{0:020d}.log"
    os.mkfifo(path)

    def refused() -> None:
        with pytest.raises((OSError, PartitionError), match=PIPE):
            reads(path)

    in_time(refused)
    assert open_below(tmp_path) == []


def test_what_is_regular_is_read_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    assert (read_regular(path), read_regular(path, 4)) == (b"0123456789", b"0123")
    os.truncate(path, 2**40)
    assert read_regular(path, 4) == b"0123"
    with pytest.raises(OSError, match="larger than"):
        read_regular(path)
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "other")


PARTITION_FILES = ["partition.metadata", "leader-epoch-checkpoint", "restored-without-producers.json"]
LOG_DIR_FILES = ["cleaner-offset-checkpoint", "log-start-offset-checkpoint"]


@pytest.mark.parametrize("name", PARTITION_FILES)
def test_a_pipe_in_one_partition_keeps_no_other_from_being_archived(name: str, tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0", "append-time-0"), MemoryStore()
    (log_dir / "orders-0" / name).unlink(missing_ok=True)
    os.mkfifo(log_dir / "orders-0" / name)
    with capture_logs() as logs:
        in_time(lambda: one_round(log_dir, store, tmp_path / "state"))
    assert "append-time-0" in archived_states(store)
    reported = [
        str(line.get("error") or line.get("reason")) for line in logs if line["log_level"] in {"error", "warning"}
    ]
    assert [text for text in reported if PIPE in text]
    assert ("orders-0" in archived_states(store)) == (name == "restored-without-producers.json")


@pytest.mark.parametrize("name", LOG_DIR_FILES)
def test_a_pipe_in_a_log_dir_ends_no_round(name: str, tmp_path: Path) -> None:
    log_dir, store = copy_partitions(tmp_path, "orders-0"), MemoryStore()
    (log_dir / name).unlink(missing_ok=True)
    os.mkfifo(log_dir / name)
    in_time(lambda: one_round(log_dir, store, tmp_path / "state"))


def test_a_pipe_for_meta_properties_is_reported(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "meta.properties")
    found: list[str] = []
    in_time(lambda: found.append(read_log_dir_state(tmp_path).problem))
    assert PIPE in found[0]


COMPACTED_FILES = [
    "../cleaner-offset-checkpoint",
    "{active}.snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
]


@pytest.mark.parametrize("name", COMPACTED_FILES)
def test_a_pipe_in_a_directory_that_is_compacted_is_reported(name: str, tmp_path: Path) -> None:
    log_dir = copy_partitions(tmp_path, "orders-0")
    active = max((log_dir / "orders-0").glob("*.log")).stem
    path = log_dir / "orders-0" / name.format(active=active)
    path.unlink(missing_ok=True)
    os.mkfifo(path)

    def refused() -> None:
        with pytest.raises(PartitionError, match="not a regular file; move it out"):
            compact_directory(
                named_partition(log_dir / "orders-0"),
                tmp_path / "out",
                CompactionRules(0),
                LocalEngine(),
                Forgetting(0, None),
                hash_key=bytes(16),
            )

    in_time(refused)
    assert not (tmp_path / "out").exists()


def one_round(log_dir: Path, store: MemoryStore, state_dir: Path) -> None:
    with tools_for(log_dir, store, state_dir) as context:
        rounds: ArchiveLoop = rounds_over(context, log_dir)
        context.facts.refresh()
        rounds.run_once()
