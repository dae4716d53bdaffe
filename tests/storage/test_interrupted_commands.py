"""Ctrl-C and SIGTERM while the store does not answer: the first is explained, the second ends the process."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar.cli import interrupts
from sidecar.cli.interrupts import ended_by_signals
from tests.golden import golden
from tests.real.daemon import eventually
from tests.real.product import environment
from tests.restore.archives import archived, golden_topic_id
from tests.servers.fault_proxy import fault_proxy
from tests.servers.s3_server import ACCESS_KEY, REGION, SECRET_KEY
from tests.storage.s3_servers import new_bucket, plain_client

PROGRAM = """
import signal
from sidecar.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""
"""A suite that a shell runs in the background passes on that SIGINT is ignored."""
DURING_IMPORTS = f"""
import os, sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "sidecar.cli.app":
            os.kill(os.getpid(), int(sys.argv.pop()))
sys.meta_path.insert(0, Finder())
{PROGRAM}"""
"""The signal comes while the program is imported."""
DROPPED = """
import contextlib, os, signal, sys, threading, weakref
from sidecar.cli.interrupts import ended_by_signals

class Thing:
    pass

def interrupt(_reference=None):
    os.kill(os.getpid(), int(sys.argv[2]))

def in_a_callback():
    thing = Thing()
    reference = weakref.ref(thing, interrupt)
    del thing

def in_a_library():
    with contextlib.suppress(BaseException):
        interrupt()

def as_another_error():
    try:
        interrupt()
    except SystemExit:
        raise ImportError("cannot load module more than once per process") from None

def while_a_lock_is_free():
    with lock:
        lock.release()
        interrupt()

lock = threading.Lock()
signal.signal(signal.SIGINT, signal.default_int_handler)
with ended_by_signals():
    globals()[sys.argv[1]]()
    threading.Event().wait()
"""
"""The signal comes where what its handler raises is ignored."""
REPEATED = """
import contextlib, os, signal, sys
from sidecar.cli import interrupts

begun = []
interrupts._begin = begun.append
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with interrupts.ended_by_signals():
        with contextlib.suppress(BaseException):
            os.kill(os.getpid(), int(sys.argv[2]))
        if sys.argv[1] == "second":
            os.kill(os.getpid(), int(sys.argv[2]))
    for function in begun[1:]:
        function()
finally:
    print("the work is done")
"""
"""The interrupt is dropped, and not raised again yet."""
LATE = """
import _thread, os, signal, sys, time
from sidecar.cli import interrupts

def start_late(function, arguments):
    def late():
        time.sleep(0.1)
        print("the thread runs", flush=True)
        function(*arguments)

    return _thread.start_new_thread(late, ())

interrupts.start_new_thread = start_late
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    with interrupts.ended_by_signals():
        os.kill(os.getpid(), int(sys.argv[1]))
finally:
    print("the program ends", flush=True)
"""
"""The thread that explains the interrupt takes its time to begin."""
WITHOUT_THREADS = """
import os, signal, sys
from sidecar.cli import interrupts

def refused(_function, _arguments):
    raise RuntimeError("can't start new thread")

interrupts.start_new_thread = refused
signal.signal(signal.SIGINT, signal.default_int_handler)
with interrupts.ended_by_signals():
    os.kill(os.getpid(), int(sys.argv[1]))
"""
"""As under a limit on the processes of a user or of a container, whose threads count."""
ID = str(golden_topic_id("orders"))
KEPT = ("--leader-epochs", "keep", "--producer-state", "keep")
COMMANDS = {
    "restore": ("GET", ["--topic", "orders", "--topic-id", ID, "--to", "{place}", *KEPT]),
    "verify": ("GET", ["--deep"]),
    "compact": ("GET", ["--archive", "{archive}", "--topic", "compacted", "--dry-run"]),
    "backfill": ("PUT", ["--log-dir", "{logs}", "--assume-leader", "--single-writer", "--state-dir", "{place}"]),
}
EXPLANATION = "interrupted: waiting for requests and tasks in progress"


@pytest.fixture(scope="module")
def bucket(moto_endpoint: str) -> str:
    """With the golden archive below `archive`."""
    name, client = new_bucket(moto_endpoint), plain_client(moto_endpoint)
    for key, body in archived().objects.items():
        client.put_object(Bucket=name, Key=f"archive/{key}", Body=body)
    client.close()
    return name


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("restore", signal.SIGINT),
        ("verify", signal.SIGTERM),
        ("compact", signal.SIGINT),
        ("backfill", signal.SIGTERM),
    ],
)
def test_the_second_signal_ends_a_command_that_waits_for_the_store(
    name: str, number: signal.Signals, bucket: str, moto_endpoint: str, tmp_path: Path
) -> None:
    method, options = COMMANDS[name]
    place, errors = tmp_path / "place", tmp_path / "errors"
    place.mkdir()
    archive = f"s3://{bucket}/{'new' if method == 'PUT' else 'archive'}"
    names = {"place": place, "archive": archive, "logs": golden("4.3.0") / "logs"}
    with fault_proxy(moto_endpoint) as proxy, errors.open("wb") as file:
        settings = {
            "store.url": archive,
            "store.s3.endpoint_url": proxy.endpoint_url,
            "store.s3.region": REGION,
            "store.s3.addressing_style": "path",
            "store.s3.access_key_id": ACCESS_KEY,
            "store.s3.secret_access_key": SECRET_KEY,
            "store.s3.read_timeout_s": "3600",
            "broker.settle_ms": "0",
            "broker.snapshot_grace_ms": "0",
        }
        proxy.hold(method, ".log", float("inf"))
        command = [sys.executable, "-c", PROGRAM, name, *(option.format(**names) for option in options)]
        with subprocess.Popen(command, stdout=file, stderr=file, env=environment(settings)) as process:
            try:
                eventually(lambda: proxy.held.is_set() or process.poll() is not None)
                process.send_signal(number)
                eventually(lambda: EXPLANATION in errors.read_text() or process.poll() is not None)
                assert process.poll() is None, errors.read_text()
                process.send_signal(number)
                eventually(lambda: process.poll() is not None)
            finally:
                process.kill()
    assert process.returncode == 128 + number
    assert errors.read_text().count(EXPLANATION) == 1
    assert "Traceback" not in errors.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_the_imports_ends_the_program_without_a_traceback(number: signal.Signals) -> None:
    command = [sys.executable, "-c", DURING_IMPORTS, "version", str(int(number))]
    done = subprocess.run(command, env=environment({}), capture_output=True, text=True, check=False)
    assert done.returncode == 128 + number
    assert done.stderr == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["in_a_callback", "in_a_library", "as_another_error", "while_a_lock_is_free"])
def test_a_signal_ends_the_program_also_where_its_exception_is_dropped(where: str, number: signal.Signals) -> None:
    command = [sys.executable, "-c", DROPPED, where, str(int(number))]
    done = subprocess.run(command, env=environment({}), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 128 + number, done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("when", "ends_at_once"), [("second", True), ("after the end", False)])
def test_only_a_second_signal_ends_the_program_at_once(when: str, ends_at_once: bool, number: signal.Signals) -> None:
    command = [sys.executable, "-c", REPEATED, when, str(int(number))]
    done = subprocess.run(command, env=environment({}), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == (128 + number if ends_at_once else 0), done.stderr
    assert ("the work is done" in done.stdout) is not ends_at_once


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_no_thread_begins_when_the_interpreter_has_ended(number: signal.Signals) -> None:
    """Else the process dies of it: 13 of 1,500 interrupted commands did on a busy machine, 11 of a segmentation fault."""
    command = [sys.executable, "-c", LATE, str(int(number))]
    done = subprocess.run(command, env=environment({}), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 128 + number, done.stderr
    assert done.stdout.splitlines() == ["the thread runs", "the program ends"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_program_also_where_no_thread_can_begin(number: signal.Signals) -> None:
    command = [sys.executable, "-c", WITHOUT_THREADS, str(int(number))]
    done = subprocess.run(command, env=environment({}), capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (128 + number, "")


def test_the_thread_that_explains_waits_before_it_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it imports while the interpreter ends: of 6,000 processes on a busy machine 184 died of that."""

    class Slept(Exception):
        pass

    class Clock:
        def sleep_s(self, _duration_s: float) -> None:
            raise Slept

    monkeypatch.setattr(interrupts, "SystemClock", Clock)
    monkeypatch.delitem(sys.modules, "sidecar.cli.output", raising=False)
    with pytest.raises(Slept):
        interrupts._explain()
    assert "sidecar.cli.output" not in sys.modules


def test_an_ignored_signal_stays_ignored() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with ended_by_signals():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
