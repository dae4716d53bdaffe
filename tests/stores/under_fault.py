"""`run` archives a growing log through the proxy while it breaks requests; then the archive is compared with the log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.segments import MIB, TOPIC, write_log_dir
from sidecar.model import ObjectKey
from tests.real.daemon import Daemon, GrowingLog, now_s
from tests.real.product import json_lines, run_installed, run_program, s3_settings, store_of
from tests.real.soak_equality import commits_of
from tests.runner.rig import archived_states, ranges, rolled_ranges
from tests.servers.fault_proxy import fault_proxy
from tests.servers.s3_server import S3Server
from tests.stores.fault_modes import FaultMode

PARTITION = f"{TOPIC}-0"
SEGMENT_BYTES = 6 * MIB
SEGMENTS_BEFORE, SEGMENTS_AFTER = 2, 4
RECOVERY_LIMIT_S = 300.0
REFUSED = 6
SETTINGS = {
    "run.scan_interval_s": "1",
    "run.retry_wait_s": "5",
    "store.retry.attempts": "6",
    "store.retry.wait_s_first": "0.5",
    "store.s3.read_timeout_s": "5",
    "store.s3.part_bytes": str(5 * MIB),
}
"""The default of `read_timeout_s` and `retry_wait_s` is a minute, of `scan_interval_s` half of it."""


@dataclass(frozen=True)
class Outcome:
    """What happened. Times are seconds.

    `took_s`: from the first segment under faults until all are archived. `recovered_s`: from the faults' end on, 0 if it was
    done before. `ended`: exit codes of processes that gave up and were started again.
    """

    broken: int
    took_s: float
    recovered_s: float
    ended: tuple[int, ...]
    reported: Counter[str]
    commits: int
    verify_exit_code: int
    orphans: int


@dataclass(frozen=True)
class Refusal:
    """How a `run` ended that saw at its start what the store does wrong."""

    broken: int
    exit_code: int
    reason: str


def make_source(directory: Path) -> Path:
    """The log that all modes archive."""
    return write_log_dir(directory, SEGMENTS_BEFORE + SEGMENTS_AFTER + 1, SEGMENT_BYTES)


@contextmanager
def writers_of(mode: FaultMode, settings: Mapping[str, str], directory: Path) -> Iterator[Callable[[], list[Daemon]]]:
    """The processes, not started yet: each call starts those that do not run, and returns all."""
    with ExitStack() as stack:
        daemons = [Daemon(directory / f"writer-{number}", settings) for number in range(mode.writers)]
        for daemon in daemons:
            stack.callback(daemon.process.kill)

        def start() -> list[Daemon]:
            for daemon in daemons:
                if not daemon.process.alive:
                    daemon.process.launch()
            return daemons

        yield start


def run_under(mode: FaultMode, server: S3Server, source: Path, directory: Path) -> Outcome | Refusal:
    """Archive everything in spite of the mode, or be refused. Raises AssertionError if this does not happen."""
    return _refused(mode, server, source, directory) if mode.is_refused else _archived(mode, server, source, directory)


def _archived(mode: FaultMode, server: S3Server, source: Path, directory: Path) -> Outcome:
    """Raises AssertionError if it takes too long, or something is missing or there twice."""
    log_dir = directory / "logs"
    log = GrowingLog(source, log_dir, PARTITION)
    direct = {**s3_settings(server), "store.url": f"s3://{server.bucket}/{directory.name}"}
    with fault_proxy(server.endpoint) as proxy:
        settings = {**SETTINGS, **direct, **s3_settings(server, proxy.endpoint_url), "broker.log_dirs": str(log_dir)}
        with writers_of(mode, settings, directory) as start, store_of(direct) as store:
            ended: list[int] = []

            def end_offset() -> int:
                state = archived_states(store).get(PARTITION)
                return (state.end_offset or 0) if state else 0

            def until(condition: Callable[[], bool], limit_s: float = RECOVERY_LIMIT_S) -> None:
                """Waits, and starts again what ended."""
                deadline_s = now_s() + limit_s
                while not condition():
                    assert now_s() < deadline_s, (mode.name, [daemon.process.tail() for daemon in start()])
                    ended.extend(_ended(start()))
                    start()
                    # Each look reads the archive: as often as that costs as much as the program that is watched.
                    time.sleep(0.2)  # noqa: TID251 - real processes have no other clock

            for _ in range(SEGMENTS_BEFORE):
                wanted = log.roll()
            if not mode.at_start:
                start()
                until(lambda: end_offset() == wanted)
            proxy.released.clear()
            proxy.faults = mode.fresh_faults()
            began_s = now_s()
            for _ in range(SEGMENTS_AFTER):
                wanted = log.roll()
            start()
            if mode.lasts_s is not None:
                ends_s = began_s + mode.lasts_s
                until(lambda: now_s() >= ends_s)
                proxy.release()
            healed_s = now_s()
            until(lambda: end_offset() == wanted)
            done_s = now_s()
            proxy.release()
            events = [event for daemon in start() for event in daemon.events()]
            for daemon in start():
                daemon.process.end(30.0)
            state = archived_states(store)[PARTITION]
            assert (ranges(state), state.holes) == (rolled_ranges(log_dir, PARTITION), ()), mode.name
            commits = len(list(commits_of(store, ObjectKey(state.lineage.root))))
        done = run_program(direct, "verify", "--deep", "--json")
        (row,) = json_lines(done)
        assert (done.returncode, row["problems"]) == (0, []), (mode.name, done.stdout, done.stderr)
    reported = Counter(event["event"] for event in events if event["level"] in {"warning", "error"})
    recovered_s = 0.0 if mode.lasts_s is None else done_s - healed_s
    orphans = len(row["orphans"])
    return Outcome(
        proxy.broken, done_s - began_s, recovered_s, tuple(ended), reported, commits, done.returncode, orphans
    )


def _refused(mode: FaultMode, server: S3Server, source: Path, directory: Path) -> Refusal:
    """Raises AssertionError if the program starts, or leaves anything in the store."""
    url = f"s3://{server.bucket}/{directory.name}"
    with fault_proxy(server.endpoint) as proxy:
        proxy.faults = mode.fresh_faults()
        settings = {
            **SETTINGS,
            **s3_settings(server, proxy.endpoint_url),
            "store.url": url,
            "broker.log_dirs": str(source),
            "run.state_dir": str(directory / "state"),
            "broker.assume_leader": "true",
        }
        done = run_installed(settings, "run")
    assert done.returncode == REFUSED, (mode.name, done.stderr)
    with store_of({**s3_settings(server), "store.url": url}) as store:
        assert [facts.key for facts in store.list("") if not facts.key.startswith("_probe/")] == []
    return Refusal(proxy.broken, done.returncode, done.stderr.splitlines()[-1])


def _ended(daemons: list[Daemon]) -> list[int]:
    return [daemon.process.stop() for daemon in daemons if not daemon.process.alive]
