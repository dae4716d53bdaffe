"""`run --retry-start`: what a failed start shows, when the next one comes, and what ends the process."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import structlog

from sidecar import daemon
from sidecar.cli.options import GlobalOptions
from sidecar.config import HttpSettings, LoadedSettings, load_settings
from sidecar.config.changes import SettingsSource
from sidecar.daemon import EXIT_CRASHED, Flags, RestartDue
from sidecar.errors import SettingsError, SidecarError, StoreDenied, StoreUnavailable
from sidecar.reporting import health_reporter
from sidecar.runner import run_loop
from sidecar.runner.checks import Checks
from sidecar.supervisor import LASTED_S, Supervisor, retry_wait_s
from tests.daemon.looping import LOGS, WAIT_S, committed, eventually
from tests.fakes.manual_clock import ManualClock
from tests.fakes.memory_store import MemoryStore
from tests.servers.process import free_port

NO_HTTP = HttpSettings(bind=None)
Outcome = int | SidecarError | RestartDue


class Attempts:
    """Starts that end as planned, the last one by a signal. Notes when each began, and which failure it was given."""

    def __init__(self, clock: ManualClock, *outcomes: Outcome, lasting: int | None = None) -> None:
        """Args: lasting: the number of the attempt that ends only after `LASTED_S`."""
        self._clock = clock
        self._outcomes = list(outcomes)
        self._lasting = lasting
        self.began_s: list[float] = []
        self.failures: list[str] = []

    def __call__(self, flags: Flags, failure: str) -> int:
        assert not flags.stop.is_set()
        assert flags.may_restart
        self.began_s.append(self._clock.monotonic_s())
        if len(self.began_s) - 1 == self._lasting:
            self._clock.sleep_s(LASTED_S)
        self.failures.append(failure)
        if not self._outcomes:
            flags.signal_number = 15
            flags.stop.set()
            return 0
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, int):
            flags.stop.set()  # As the loop does after a fault of the program.
            return outcome
        raise outcome


def test_the_wait_doubles_up_to_a_minute() -> None:
    assert [retry_wait_s(failures) for failures in (1, 2, 3, 6, 7, 8, 1000)] == [1, 2, 4, 32, 60, 60, 60]


def test_every_failure_of_a_start_is_waited_for_and_the_next_start_knows_it() -> None:
    clock = ManualClock()
    failures = (SettingsError("no file"), StoreDenied("not allowed"), StoreUnavailable("away"), SidecarError("lock"))
    attempts = Attempts(clock, *failures)
    with structlog.testing.capture_logs() as logs:
        assert Supervisor(NO_HTTP, None, clock).run(attempts) == 0
    assert attempts.failures == ["", "no file", "not allowed", "away", "lock"]
    assert attempts.began_s == [0, 1, 3, 7, 15]
    reported = [(entry["error"], entry["next_try_s"]) for entry in logs if entry["event"] == "start_failed"]
    assert reported == [("no file", 1), ("not allowed", 2), ("away", 4), ("lock", 8)]


def test_a_fault_of_the_program_is_waited_for_too() -> None:
    clock = ManualClock()
    attempts = Attempts(clock, EXIT_CRASHED)
    assert Supervisor(NO_HTTP, None, clock).run(attempts) == 0
    assert "`crashed`" in attempts.failures[1]
    assert attempts.began_s == [0, 1]


def test_settings_that_need_a_restart_get_one_at_once() -> None:
    clock = ManualClock()
    attempts = Attempts(clock, SettingsError("wrong"), RestartDue(), SettingsError("wrong"))
    assert Supervisor(NO_HTTP, None, clock).run(attempts) == 0
    assert attempts.began_s == [0, 1, 1, 2]
    assert attempts.failures == ["", "wrong", "", "wrong"]


def test_after_a_start_that_lasted_the_wait_is_short_again() -> None:
    clock = ManualClock()
    attempts = Attempts(clock, *[SettingsError("wrong")] * 4, lasting=2)
    assert Supervisor(NO_HTTP, None, clock).run(attempts) == 0
    assert attempts.began_s == [0, 1, 3, LASTED_S + 4, LASTED_S + 6]


def test_a_changed_settings_file_ends_the_wait_once_it_stays_the_same(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"

    class Writing(ManualClock):
        def sleep_s(self, seconds: float) -> None:
            super().sleep_s(seconds)
            if 40 <= self.monotonic_s() < 43:
                file.write_text("x" * int(self.monotonic_s() * 2))

    clock = Writing()
    attempts = Attempts(clock, *[SettingsError("no file")] * 6)
    Supervisor(NO_HTTP, file, clock).run(attempts)
    assert attempts.began_s == [0, 1, 3, 7, 15, 31, 43]


def test_a_signal_during_a_start_that_fails_ends_the_process() -> None:
    def attempt(flags: Flags, _failure: str) -> int:
        flags.signal_number = 15
        flags.stop.set()
        raise SettingsError("wrong")

    assert Supervisor(NO_HTTP, None, ManualClock()).run(attempt) == 0


@pytest.mark.parametrize("wrong", ["LOG__LEVEL", "LOG__LEVELS", "HTTP__BIND"])
def test_a_wrong_variable_of_the_pod_ends_no_process(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIERED_SIDECAR__HTTP__BIND", "127.0.0.1:9400")
    monkeypatch.setenv(f"TIERED_SIDECAR__{wrong}", "nonsense")
    early = GlobalOptions().load_early({"http.bind": None}).settings
    assert early.http.bind == (HttpSettings().bind if wrong == "HTTP__BIND" else "127.0.0.1:9400")
    with pytest.raises(SettingsError, match=r"http\.bind"):
        GlobalOptions().load_early({"http.bind": "nonsense"})


# With the real start, in a thread.


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError as error:  # Between two servers.
        return 0, str(error)


class Retried:
    """`run --retry-start` in a thread, over a settings file."""

    def __init__(self, tmp_path: Path, token_file: Path | None = None) -> None:
        self.port = free_port()
        self.file = tmp_path / "settings.yaml"
        self._token_file = token_file
        self._state = tmp_path / "state"
        self._flags: Flags | None = None
        http = HttpSettings(bind=f"127.0.0.1:{self.port}", token_file=token_file)
        self._thread = threading.Thread(target=partial(Supervisor(http, self.file).run, self._attempt))

    def _attempt(self, flags: Flags, failure: str) -> int:
        self._flags = flags
        load = partial(load_settings, config_file=self.file, flags={"http.bind": f"127.0.0.1:{self.port}"})
        source = SettingsSource(self.file, load, lambda _loaded: None)
        settings: LoadedSettings = source.loaded
        return daemon.run(settings.settings, source=source, flags=flags, failure=failure)

    def write(self, **changed: str) -> None:
        log_dir, url, state = (
            changed.get(name, default)
            for name, default in (("log_dir", str(LOGS)), ("url", "/archive"), ("state", str(self._state)))
        )
        token = f"http: {{token_file: {self._token_file}}}\n" if self._token_file else ""
        self.file.write_text(
            f"store: {{url: {url}}}\n"
            f"broker: {{log_dirs: [{log_dir}], assume_leader: true, settle_ms: 0, snapshot_grace_ms: 0}}\n"
            f"topics: {{include: [append-time]}}\nrun: {{state_dir: {state}, watch: false}}\n{token}"
        )

    def ready(self) -> str:
        return get(self.port, "/readyz")[1]

    def is_ready(self) -> bool:
        return get(self.port, "/readyz")[0] == 200

    @staticmethod
    def metric(text: str, name: str) -> float:
        """From what `/metrics` shows; -1 between two servers."""
        return next((float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name + " ")), -1.0)

    def starts(self) -> float:
        return self.metric(get(self.port, "/metrics")[1], "tiered_sidecar_starts_total")

    def waits_with_starts(self) -> float:
        """The starts that are shown while it waits for the next one; -1 while it does not wait."""
        text = get(self.port, "/metrics")[1]
        shown = [
            self.metric(text, f'tiered_sidecar_not_ready{{condition="{one}"}}') for one in ("start", "first_check")
        ]
        return self.metric(text, "tiered_sidecar_starts_total") if shown == [1, 0] else -1.0

    def check_now(self) -> None:
        assert self._flags is not None
        self._flags.wake.set()

    def is_alive(self) -> bool:
        """By the first answer: between two servers there is none."""
        answers: list[tuple[int, str]] = []

        def is_answered() -> bool:
            answers.append(get(self.port, "/healthz"))
            return answers[-1][0] != 0

        eventually(is_answered)
        return answers[-1] == (200, "ok\n")

    def __enter__(self) -> Retried:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        eventually(lambda: self._flags is not None)
        assert self._flags is not None
        self._flags.signal_number = 15
        self._flags.stop.set()
        self._flags.wake.set()
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


def test_settings_that_come_late_and_are_wrong_at_first_are_waited_for(tmp_path: Path, store: MemoryStore) -> None:
    with Retried(tmp_path) as retried:
        eventually(lambda: "start: cannot read settings file" in retried.ready())
        assert retried.is_alive()
        # A busy machine may need longer for a page than there is until the next start.
        eventually(lambda: "Needs attention" in get(retried.port, "/")[1])
        eventually(lambda: 'tiered_sidecar_not_ready{condition="start"} 1.0' in get(retried.port, "/metrics")[1])
        assert not store.objects
        retried.file.write_text("store: [")
        eventually(lambda: "line 1" in retried.ready())
        assert retried.is_alive()
        retried.write()
        eventually(retried.is_ready)
        assert 'tiered_sidecar_not_ready{condition="start"} 0.0' in get(retried.port, "/metrics")[1]
        eventually(lambda: committed(store, "append-time") > 0)
        eventually(lambda: retried.starts() == 1)


def test_a_state_directory_that_cannot_be_written_is_waited_for(tmp_path: Path, store: MemoryStore) -> None:
    (tmp_path / "file").touch()
    with Retried(tmp_path) as retried:
        retried.write(state=str(tmp_path / "file" / "below"))
        eventually(lambda: "start: " in retried.ready() and "state directory cannot be written" in retried.ready())
        assert retried.is_alive()
        (tmp_path / "file").unlink()
        eventually(retried.is_ready)


def test_a_store_that_is_refused_is_waited_for_until_it_is_fit(tmp_path: Path, store: MemoryStore) -> None:
    store.ignore_if_none_match = True
    with Retried(tmp_path) as retried:
        retried.write()
        eventually(lambda: "create-only put" in retried.ready() and "start: " in retried.ready())
        assert retried.is_alive()
        store.ignore_if_none_match = False
        eventually(retried.is_ready)


@pytest.mark.parametrize("lacking", ["a store that answers", "a log directory"])
def test_settings_that_need_a_restart_are_applied_while_a_start_waits(
    lacking: str, tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_loop, "START_WAIT_S_MAX", 1.0)
    unanswered = lacking == "a store that answers"
    is_mended = threading.Event()

    def refuse(*_: str) -> None:
        if unanswered and not is_mended.is_set():
            raise StoreUnavailable("no such host")

    store.before = refuse
    with Retried(tmp_path) as retried, structlog.testing.capture_logs() as logs:
        wrong = {"url": "/mistyped"} if unanswered else {"log_dir": str(tmp_path / "mistyped")}
        retried.write(**wrong)
        eventually(lambda: ("no such host" if unanswered else "mistyped does not exist") in retried.ready())
        is_mended.set()
        retried.write()
        eventually(retried.is_ready)
        before = len(logs)
        # From then on they are refused: a reload must not disturb what runs.
        retried.write(state=str(tmp_path / "another"))
        eventually(lambda: "config_reload_refused" in [entry["event"] for entry in logs[before:]])
        assert retried.is_ready()
    assert "config_restart" in [entry["event"] for entry in logs]


def test_without_its_token_the_page_is_closed_and_the_probe_is_answered(tmp_path: Path, store: MemoryStore) -> None:
    token = tmp_path / "token"
    with Retried(tmp_path, token_file=token) as retried:
        retried.write()
        assert retried.is_alive()
        assert get(retried.port, "/readyz")[0] == 503
        assert "token cannot be read" in retried.ready()
        token.write_text("a-token-that-is-long-enough")
        eventually(lambda: "a token is required" in retried.ready())


def test_a_fault_in_the_first_check_shows_until_a_check_succeeds(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    look: Callable[..., object] = Checks._look
    faults = [ZeroDivisionError("a bug")] * 2

    def fail_at_first(checks: Checks, *arguments: object) -> object:
        if faults:
            raise faults.pop()
        return look(checks, *arguments)

    monkeypatch.setattr(Checks, "_look", fail_at_first)
    with Retried(tmp_path) as retried:
        retried.write()
        eventually(lambda: "start: a fault of the program" in retried.ready())
        assert retried.is_alive()
        eventually(lambda: retried.waits_with_starts() == 0)
        eventually(retried.is_ready)
        eventually(lambda: retried.starts() == 1)
    assert not faults


def test_a_fault_after_a_start_counts_and_one_before_it_does_not(
    tmp_path: Path, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    look: Callable[..., object] = Checks._look
    fault = threading.Event()

    def fail_where_set(checks: Checks, *arguments: object) -> object:
        if fault.is_set():
            fault.clear()
            raise ZeroDivisionError("a bug")
        return look(checks, *arguments)

    monkeypatch.setattr(Checks, "_look", fail_where_set)
    with Retried(tmp_path) as retried:
        retried.write()
        eventually(lambda: retried.starts() == 1)
        fault.set()
        retried.check_now()
        # While it waits, too: a counter that falls would look like a restart of the process.
        eventually(lambda: retried.waits_with_starts() == 1)
        eventually(lambda: retried.starts() == 2)
    assert "start" in health_reporter.ALL_CONDITIONS
