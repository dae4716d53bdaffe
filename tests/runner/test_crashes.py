"""Death at every step, rerun, and the archive is the same; two archivers at once, and each range is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.errors import StoreError
from sidecar.model import ObjectKey
from sidecar.storage.opening import open_store
from sidecar.store_settings import StoreSettings
from tests.cli.running import Outcome, in_this_process
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import Fault, FaultKind, MemoryStore
from tests.golden import golden
from tests.runner.rig import archive, archived_states, ranges, rolled_ranges, tools_for
from tests.verifying import verify_partition

TOPIC = "append-time"
PARTITION = "append-time-0"


class Killed(BaseException):
    """The process is gone: nothing that it would still do happens."""


def dies_at(call: int, *, after: bool) -> tuple[Callable[[str, str], None], Callable[[], int]]:
    """A hook for `MemoryStore.before` under which the n-th call, and every later one, never (or only just) happens."""
    calls = 0
    guard = threading.Lock()

    def before(operation: str, key: str) -> None:
        nonlocal calls
        with guard:
            calls += 1
            if calls > call + (1 if after else 0):
                raise Killed(f"{operation} {key}")

    return before, lambda: calls


def number_of_calls(tmp_path: Path) -> int:
    before, count = dies_at(10**9, after=False)
    with tools_for(golden("4.3.0") / "logs", MemoryStore(before=before), tmp_path / "count") as context:
        archive(context, golden("4.3.0") / "logs", TOPIC)
    return count()


def test_death_at_any_call_and_a_rerun_give_the_same_archive_and_no_orphan(tmp_path: Path) -> None:
    log_dir = golden("4.3.0") / "logs"
    expected = rolled_ranges(log_dir, PARTITION)
    total = number_of_calls(tmp_path)
    assert total > 10
    for call in range(total):
        store = MemoryStore()
        store.before, _ = dies_at(call, after=False)
        state_dir = tmp_path / str(call)
        with pytest.raises(Killed), tools_for(log_dir, store, state_dir) as context:
            archive(context, log_dir, TOPIC)
        store.before = lambda _operation, _key: None
        with tools_for(log_dir, store, state_dir) as context:
            assert archive(context, log_dir, TOPIC).errors == []
        state = archived_states(store)[PARTITION]
        assert ranges(state) == expected, f"killed at call {call}"
        found = verify_partition(store, ObjectKey(state.lineage.root), ManualClock(0), deep=True)
        assert found.problems == ()
        assert found.orphans == (), f"killed at call {call}"


def test_without_its_journal_a_rerun_still_gives_the_same_archive_and_verify_counts_what_is_left(
    tmp_path: Path,
) -> None:
    log_dir = golden("4.3.0") / "logs"
    left = 0
    for call in range(number_of_calls(tmp_path)):
        store = MemoryStore()
        store.before, _ = dies_at(call, after=False)
        with pytest.raises(Killed), tools_for(log_dir, store, tmp_path / f"{call}-lost") as context:
            archive(context, log_dir, TOPIC)
        store.before = lambda _operation, _key: None
        with tools_for(log_dir, store, tmp_path / f"{call}-new") as context:
            archive(context, log_dir, TOPIC)
        state = archived_states(store)[PARTITION]
        assert ranges(state) == rolled_ranges(log_dir, PARTITION)
        found = verify_partition(store, ObjectKey(state.lineage.root), ManualClock(0))
        named = {f"{state.lineage.root}/{key}" for s in state.segments for key in (s.log_key, s.indexes_key)}
        extra = {key for key in store.objects if "/segments/" in key} - named
        assert len(found.orphans) == len(extra)
        left += len(extra)
    assert left > 0


@pytest.mark.parametrize(
    "kind", [FaultKind.UNAVAILABLE, FaultKind.DENIED, FaultKind.LOST_REQUEST, FaultKind.LOST_ANSWER]
)
@pytest.mark.parametrize("operation", ["put_if_absent", "upload", "head", "read"])
def test_a_fault_of_the_store_costs_at_most_another_round(kind: FaultKind, operation: str, tmp_path: Path) -> None:
    log_dir = golden("4.3.0") / "logs"
    for nth in range(4):
        if operation in {"head", "read"} and kind in {FaultKind.LOST_REQUEST, FaultKind.LOST_ANSWER}:
            continue
        store = MemoryStore(faults=[Fault(operation, nth, kind)])
        with tools_for(log_dir, store, tmp_path / f"{nth}") as context:
            first = archive(context, log_dir, TOPIC)
            assert all(isinstance(error, StoreError) for error in first.errors)
            store.faults.clear()
            assert archive(context, log_dir, TOPIC).errors == []
        state = archived_states(store)[PARTITION]
        assert ranges(state) == rolled_ranges(log_dir, PARTITION)
        found = verify_partition(store, ObjectKey(state.lineage.root), ManualClock(0), deep=True)
        assert (found.problems, found.orphans) == ((), ())


def test_a_store_that_confirms_what_it_did_not_do_gets_no_commit(tmp_path: Path) -> None:
    log_dir = golden("4.3.0") / "logs"
    store = MemoryStore(faults=[Fault("upload", 0, FaultKind.LIE)])
    with tools_for(log_dir, store, tmp_path) as context:
        report = archive(context, log_dir, TOPIC)
    assert [type(error).__name__ for error in report.errors] == ["ObjectDamaged"]
    assert not [key for key in store.objects if "/commits/" in key]


@pytest.mark.parametrize("seed", range(6))
def test_two_archivers_at_once_commit_each_range_once(seed: int, tmp_path: Path) -> None:
    log_dir = golden("4.3.0") / "logs"
    store = MemoryStore()
    problems: list[BaseException] = []

    def work(name: str, ahead: int) -> None:
        try:
            with tools_for(log_dir, store, tmp_path / name, uploads_ahead=ahead) as context:
                for _ in range(3):
                    archive(context, log_dir, "orders", TOPIC)
        except BaseException as error:  # noqa: BLE001 - handed to the asserting thread
            problems.append(error)

    threads = [threading.Thread(target=work, args=(name, 1 + (seed + n) % 3)) for n, name in enumerate("abc")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    for partition, state in archived_states(store).items():
        assert ranges(state) == rolled_ranges(log_dir, partition)
        found = verify_partition(store, ObjectKey(state.lineage.root), ManualClock(0), deep=True)
        assert (found.problems, found.orphans) == ((), ())


CHILD = """
import os, signal, sys
from contextlib import nullcontext
from pathlib import Path
from sidecar.runner import assembly
from sidecar.storage import directory_store
from sidecar.config import Settings
from sidecar.runner.backfill import backfill

call, when, archive, state, log_dir = int(sys.argv[1]), sys.argv[2], *sys.argv[3:]
calls = 0

def mortal(function):
    def wrapper(*arguments, **options):
        global calls
        calls += 1
        mine = calls
        if mine == call and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*arguments, **options)
        if mine == call and when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return wrapper

store = directory_store.DirectoryStore
for name in ("put_if_absent", "upload"):
    setattr(store, name, mortal(getattr(store, name)))
assembly.probing_store = lambda *arguments, **options: nullcontext(lambda: None)
settings = Settings.model_validate({
    "store": {"url": archive}, "run": {"state_dir": state}, "topics": {"include": ["append-time"]},
    "broker": {"log_dirs": [log_dir], "assume_leader": True, "settle_ms": 0, "snapshot_grace_ms": 0},
})
sys.exit(backfill(settings, dry_run=False).exit_code)
"""


def run_child(call: int, when: str, archive_dir: Path, state_dir: Path) -> int:
    arguments = [str(call), when, str(archive_dir), str(state_dir), str(golden("4.3.0") / "logs")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    child = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments], check=False, capture_output=True, text=True, env=environment
    )
    assert child.returncode in (0, -signal.SIGKILL), child.stderr[-2000:]
    return child.returncode


def run_again(archive_dir: Path, state_dir: Path) -> Outcome:
    """The same, in this process, to its end."""
    places = ["--archive", archive_dir, "--state-dir", state_dir, "--log-dir", golden("4.3.0") / "logs"]
    settled = ["--set", "broker.settle_ms=0", "--set", "broker.snapshot_grace_ms=0"]
    return in_this_process("backfill", *places, "--topic", TOPIC, "--assume-leader", *settled)


@pytest.mark.parametrize(("call", "when"), [(1, "before"), (3, "after"), (5, "before")])
def test_kill_9_of_a_real_process_and_a_rerun_give_the_same_archive(call: int, when: str, tmp_path: Path) -> None:
    archive_dir, state_dir = tmp_path / "archive", tmp_path / "state"
    assert run_child(call, when, archive_dir, state_dir) == -signal.SIGKILL
    assert run_again(archive_dir, state_dir).code == 0
    store = open_store(StoreSettings(url=str(archive_dir)))
    state = archived_states(store)[PARTITION]
    assert ranges(state) == rolled_ranges(golden("4.3.0") / "logs", PARTITION)
    found = verify_partition(store, ObjectKey(state.lineage.root), ManualClock(0), deep=True)
    assert (found.problems, found.orphans) == ((), ())
