"""Killed anywhere and run again: the same files as without it, and no segment that was whole is fetched twice."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from sidecar.errors import StoreUnavailable
from sidecar.host.log_dir_lock import LogDirRefused
from sidecar.logformat.bodies.building import build_batch
from sidecar.logformat.bodies.record import Record
from sidecar.logformat.files import PositionalFile
from sidecar.logformat.names import HIGH_WATERMARK_CHECKPOINT, LOCK
from sidecar.model import ObjectKey
from sidecar.restore import segments
from sidecar.restore.request import LeaderEpochMode, OpenTransactionMode, RestoreRequest
from sidecar.restore.restore import restore
from tests.cli.running import in_this_process
from tests.fakes.memory_store import MemoryStore
from tests.restore.archives import CLOCK, archived, files_of, golden_topic_id, own_log_dir
from tests.restore.test_deleted_records import deleted_before
from tests.restore.test_refusals import new_topic
from tests.runner.rig import archive, copy_partitions, tools_for

TOPIC = "transactions"
NAMES = (f"{TOPIC}-0", f"{TOPIC}-1")
SEGMENTS = 6
"""Of both."""


class Killed(BaseException):
    """Our death, as far as a test can play it: nothing of ours runs after it."""


def request_for(log_dir: Path, **options: object) -> RestoreRequest:
    return RestoreRequest(TOPIC, log_dir, topic_id=golden_topic_id(TOPIC), **options)  # type: ignore[arg-type]


def content(log_dir: Path) -> dict[str, dict[str, bytes]]:
    return {name: files_of(log_dir / name) for name in NAMES}


def last_file(files: dict[str, bytes]) -> str:
    """The active segment: only a restored log has it."""
    return max(name for name in files if name.endswith(".log"))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    log_dir = own_log_dir(tmp_path_factory.mktemp("expected"))
    assert restore(archived(), CLOCK, request_for(log_dir)).exit_code == 0
    return content(log_dir)


def dying_at(number: int, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Let the n-th change of the disk be the last. Returns how many there were."""
    count = 0

    def counted(call: Callable[..., object]) -> Callable[..., object]:
        def once_more(*arguments: object, **options: object) -> object:
            nonlocal count
            count += 1
            if count > number:
                raise Killed
            return call(*arguments, **options)

        return once_more

    for name in ("fsync", "pwrite"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
    for name in ("rename", "unlink", "mkdir"):
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))
    return lambda: count


def test_death_at_any_change_of_the_disk(
    expected: dict[str, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Counted, but not done: what a machine forgets when its power fails is not played here.
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    first = own_log_dir(tmp_path)
    new_topic(first, NAMES[1], str(golden_topic_id(TOPIC)), "0\n0\n")
    shutil.copytree(first, tmp_path / "template")
    with monkeypatch.context() as patch:
        counted = dying_at(10**9, patch)
        restore(archived(), CLOCK, request_for(first), workers=1)
        total = counted()
    assert total > 60
    # Of those at the end, where directories get their names, each one; of the others some.
    for number in [*range(0, total - 18, 17), *range(total - 18, total)]:
        log_dir = tmp_path / f"dir-{number}"
        shutil.copytree(tmp_path / "template", log_dir)
        with monkeypatch.context() as patch:
            dying_at(number, patch)
            with pytest.raises(Killed):
                restore(archived(), CLOCK, request_for(log_dir), workers=1)
        done = {name for name in NAMES if (log_dir / name / last_file(expected[name])).exists()}
        for name in done:  # what has its final name is whole
            assert files_of(log_dir / name).items() >= expected[name].items()
        for name in set(NAMES) - done:
            assert not any(path.stat().st_size for path in (log_dir / name).glob("*.log"))
        whole = [path.name for path in log_dir.glob("*.restoring/*.log") if path.stat().st_size]
        store = archived()
        report = restore(store, CLOCK, request_for(log_dir))
        assert report.exit_code == 0
        assert content(log_dir) == expected, number
        finished = sum(len(outcome.plan.segments) for outcome in report.outcomes if outcome.is_done)
        assert store.calls["stream"] == SEGMENTS - len(whole) - finished, number
        assert sorted(path.name for path in log_dir.iterdir() if path.is_dir()) == [*NAMES]


def test_another_wish_fetches_anew_what_differs(expected: dict[str, dict[str, bytes]], tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    for options in ({"leader_epochs": LeaderEpochMode.FLATTEN}, {}):
        store = archived()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sidecar.restore.restore.Run.finish", _killed)
            with pytest.raises(Killed):
                restore(store, CLOCK, request_for(log_dir, **options))
        assert store.calls["stream"] == SEGMENTS
    store = archived()
    assert restore(store, CLOCK, request_for(log_dir)).exit_code == 0
    assert store.calls["stream"] == 0
    assert content(log_dir) == expected


def _killed(*_: object) -> None:
    raise Killed


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot"])
def test_a_segment_is_complete_only_with_all_files_of_its_note(
    suffix: str, expected: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    """The `.log` gets its name after the note, and the process may die in between. The others may be lost with the machine."""
    log_dir = own_log_dir(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sidecar.restore.restore.Run.finish", _killed)
        with pytest.raises(Killed):
            restore(archived(), CLOCK, request_for(log_dir))
    gone, *_ = sorted(log_dir.glob(f"*.restoring/*{suffix}"))
    gone.unlink()
    cut = max(log_dir.glob(f"*.restoring/*{suffix}"))
    cut.write_bytes(b"cut")
    store = archived()
    assert restore(store, CLOCK, request_for(log_dir)).exit_code == 0
    assert content(log_dir) == expected
    assert store.calls["stream"] == 2


def test_a_note_with_damaged_producers_is_not_believed(tmp_path: Path) -> None:
    options, undisturbed = {"partitions": (0,), "offset_range": (0, 300)}, own_log_dir(tmp_path)
    assert restore(archived(), CLOCK, request_for(undisturbed, **options)).exit_code == 0
    (tmp_path / "again").mkdir()
    log_dir = own_log_dir(tmp_path / "again")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sidecar.restore.restore.Run.finish", _killed)
        with pytest.raises(Killed):
            restore(archived(), CLOCK, request_for(log_dir, **options))
    notes = {path: json.loads(path.read_text()) for path in log_dir.glob("*.restoring/*.note")}
    ((path, note),) = ((path, note) for path, note in notes.items() if note["restored"]["producers"])
    path.write_text(json.dumps({**note, "restored": {**note["restored"], "producers": "AAAA"}}))
    store = archived()
    assert restore(store, CLOCK, request_for(log_dir, **options)).exit_code == 0
    assert store.calls["stream"] == 1
    assert files_of(log_dir / NAMES[0]) == files_of(undisturbed / NAMES[0])


@pytest.mark.parametrize("end_offset", [116, 220])
def test_markers_of_a_run_that_was_to_abort_leave_nothing_behind(end_offset: int, tmp_path: Path) -> None:
    """In an empty log they stood under the name of the segment of which nothing is kept."""
    found = []
    for name, wishes in (("twice", (OpenTransactionMode.ABORT, OpenTransactionMode.KEEP)), ("once", ())):
        (tmp_path / name).mkdir()
        log_dir, store = own_log_dir(tmp_path / name), deleted_before(end_offset, NAMES[0])
        options = {"partitions": (0,), "offset_range": (0, end_offset)}
        for wish in wishes:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("sidecar.restore.restore.Run.swap_in", _killed)
                with pytest.raises(Killed):
                    restore(store, CLOCK, request_for(log_dir, open_transactions=wish, **options))
        (outcome,) = restore(store, CLOCK, request_for(log_dir, **options)).outcomes
        assert outcome.log is not None
        assert outcome.log.start_offset == outcome.log.end_offset == end_offset
        assert outcome.log.open_transactions
        found.append(files_of(log_dir / NAMES[0]))
    assert found[0] == found[1]
    assert not any(name.endswith(".txnindex") for name in found[1])


HANGS_AT_THE_THIRD_SEGMENT = """
import sys
import threading
from sidecar.cli import main
from sidecar.storage.directory_store import DirectoryStore
stream, calls = DirectoryStore.stream, []
def hanging(self, key, *arguments, **options):
    calls.append(key)
    if len(calls) == 3:
        print("third", flush=True)
        sys.stdin.read()
    if len(calls) > 3:
        threading.Event().wait(0.5)  # A signal is heard before all segments are there, however fast the disk is.
    return stream(self, key, *arguments, **options)
DirectoryStore.stream = hanging
main()
"""


def test_a_process_that_is_killed_goes_on(expected: dict[str, dict[str, bytes]], tmp_path: Path) -> None:
    archive_dir = tmp_path / "archive"
    for key, body in archived().objects.items():
        path = archive_dir / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    log_dir = own_log_dir(tmp_path)
    arguments = ["restore", "--archive", str(archive_dir), "--topic", TOPIC, "--to", str(log_dir), "--workers", "1"]
    arguments += ["--topic-id", str(golden_topic_id(TOPIC)), "--json"]
    command = [sys.executable, "-c", HANGS_AT_THE_THIRD_SEGMENT, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"third\n"
        process.send_signal(signal.SIGKILL)
    assert sorted(path.name for path in log_dir.iterdir() if path.is_dir()) == [f"{name}.restoring" for name in NAMES]
    done = in_this_process(*arguments)
    assert done.code == 0, done.err
    (report,) = done.lines()
    assert [row["segments_resumed"] for row in report["partitions"]] == [2, 0]
    assert content(log_dir) == expected


def test_what_gets_a_name_was_synced_before_and_so_are_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, ...]] = []
    sync, rename = os.fsync, Path.rename

    def synced(descriptor: int) -> None:
        done.append(("sync", str(Path(f"/proc/self/fd/{descriptor}").readlink())))
        sync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        done.append(("rename", str(path), str(target)))
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "rename", renamed)
    log_dir = own_log_dir(tmp_path)
    assert restore(archived(), CLOCK, request_for(log_dir), workers=1).exit_code == 0
    files = [number for number, (call, path, *_) in enumerate(done) if call == "rename" and path.endswith(".part")]
    assert len(files) > SEGMENTS
    assert all(done[number - 1] == ("sync", done[number][1]) for number in files)
    checkpoint = max(number for number in files if done[number][2] == str(log_dir / HIGH_WATERMARK_CHECKPOINT))
    for name in NAMES:
        staging = f"{log_dir / name}.restoring"
        last = max(number for number in files if done[number][2].startswith(f"{staging}/"))
        named = done.index(("rename", staging, str(log_dir / name)))
        assert ("sync", staging) in done[last:named]
        assert ("sync", str(log_dir)) in done[checkpoint:named]
        assert done[named + 1] == ("sync", str(log_dir))


def test_nothing_gets_its_final_name_when_the_lock_no_longer_keeps_brokers_away(tmp_path: Path) -> None:
    log_dir = own_log_dir(tmp_path)
    with pytest.raises(LogDirRefused, match="its lock file was replaced"):
        restore(
            archived(),
            CLOCK,
            request_for(log_dir),
            progress=lambda _progress: (log_dir / LOCK).unlink(missing_ok=True),
        )
    assert not any((log_dir / name).exists() for name in NAMES)
    assert all((log_dir / f"{name}.restoring").is_dir() for name in NAMES)


def test_what_is_received_ends_when_another_segment_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, stop, taken, stream = archived(), Event(), list[int](), MemoryStore.stream
    failing, other = sorted(key for key in store.objects if f"/{TOPIC}/0/" in key and key.endswith(".log"))[:2]
    begun = Event()

    def watched(self: MemoryStore, key: ObjectKey, chunk_bytes: int, *, checked: bool) -> Iterator[bytes]:
        if key == failing:
            assert begun.wait(60)
            raise StoreUnavailable("no answer")
        for chunk in stream(self, key, 100, checked=checked):
            if key == other:
                begun.set()
                assert stop.wait(60)
                taken.append(len(chunk))
            yield chunk

    monkeypatch.setattr("sidecar.restore.restore.Event", lambda: stop)
    monkeypatch.setattr(MemoryStore, "stream", watched)
    with pytest.raises(StoreUnavailable):
        restore(store, CLOCK, request_for(own_log_dir(tmp_path)), workers=2)
    assert taken == [100]


def test_memory_does_not_grow_with_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "_CHUNK_BYTES", 64 * 1024)
    store = archive_of_one_large_segment(tmp_path)
    log_dir = own_log_dir(tmp_path)
    restore(archived(), CLOCK, RestoreRequest("codecs-librdkafka", log_dir, topic_id=golden_topic_id("orders")))
    tracemalloc.start()
    report = restore(store, CLOCK, RestoreRequest("large", log_dir, topic_id=golden_topic_id("orders")))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.exit_code == 0
    assert report.outcomes[0].size_bytes > 24 * 2**20
    assert peak_bytes < 8 * 2**20


def test_a_batch_larger_than_any_window_is_read_again_from_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = archive_of_two_large_batches(tmp_path, monkeypatch)
    log_dir = own_log_dir(tmp_path)
    report = restore(store, CLOCK, RestoreRequest("large", log_dir, topic_id=golden_topic_id("orders")))
    assert report.exit_code == 0
    (archived_log,) = (content for key, content in store.objects.items() if key.endswith(".log"))
    assert (log_dir / "large-0" / f"{0:020d}.log").read_bytes() == archived_log
    assert store.calls["stream"] == 1


def test_a_disk_that_cannot_be_read_back_stops_the_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_file: PositionalFile, _position: int, _buffer: memoryview) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    store = archive_of_two_large_batches(tmp_path, monkeypatch)
    log_dir = own_log_dir(tmp_path)
    monkeypatch.setattr(PositionalFile, "__call__", failing)
    (outcome,) = restore(store, CLOCK, RestoreRequest("large", log_dir, topic_id=golden_topic_id("orders"))).outcomes
    assert outcome.problem.startswith(
        f"{log_dir / 'large-0.restoring' / f'{0:020d}.log'}: cannot be written: Input/output"
    )


def archive_of_two_large_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """The end of the first chunk parts the header of the second batch, whose beginning must be read again."""
    store = archive_of_one_large_segment(tmp_path, record_bytes=17 * 2**20, count=2)
    (size_bytes,) = (len(content) for key, content in store.objects.items() if key.endswith(".log"))
    monkeypatch.setattr(segments, "_CHUNK_BYTES", size_bytes // 2 + 40)
    return store


def archive_of_one_large_segment(tmp_path: Path, record_bytes: int = 128 * 1024, count: int = 200) -> MemoryStore:
    log_dir = copy_partitions(tmp_path / "large")
    directory = log_dir / "large-0"
    directory.mkdir()
    batch = bytearray(
        build_batch([Record(0, 1_700_000_000_000, b"k", bytes(record_bytes))], base_offset=0, leader_epoch=0)
    )
    with (directory / f"{0:020d}.log").open("wb") as file:
        for offset in range(count):
            batch[:8] = offset.to_bytes(8)
            file.write(batch)
    (directory / f"{count:020d}.log").touch()
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (log_dir / name).write_text(f"0\n1\nlarge 0 {count}\n")
    store = MemoryStore()
    with tools_for(log_dir, store, tmp_path / "state") as context:
        assert archive(context, log_dir, "large").errors == []
    return store
