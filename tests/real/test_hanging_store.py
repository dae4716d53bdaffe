"""A store that accepts connections and answers nothing, as one that is stopped, or behind a network that drops packets."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.descriptors import open_below
from tests.golden import golden
from tests.real.daemon import Daemon, GrowingLog, eventually
from tests.real.product import s3_settings, store_of
from tests.runner.rig import archived_states, ranges, rolled_ranges
from tests.servers.versitygw import VersityGateway

pytestmark = pytest.mark.real

LOGS = golden("4.3.0") / "logs"
PARTITIONS = ("orders-0", "orders-1")


def open_logs(daemon: Daemon, log_dir: Path) -> list[str]:
    """Segments that the process holds open, below the log dir."""
    links = open_below(log_dir, daemon.process.pid)
    return sorted({link.removeprefix(f"{log_dir}/") for link in links if ".log" in link})


def test_what_rolls_while_the_store_hangs_is_held_and_the_silence_is_reported(tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    logs = [GrowingLog(LOGS, log_dir, partition) for partition in PARTITIONS]
    with VersityGateway(tmp_path / "versitygw", options=["--quiet"]) as gateway:
        settings = {
            **s3_settings(gateway),
            "store.url": f"s3://{gateway.bucket}/archive",
            "store.s3.read_timeout_s": "2",
            "store.retry.attempts": "20",
            "broker.log_dirs": str(log_dir),
            "run.scan_interval_s": "1",
            "run.workers": "1",
        }
        with Daemon(tmp_path, settings) as daemon:
            eventually(daemon.is_ready)
            ends = {log.partition: log.roll() for log in logs}
            eventually(lambda: all(daemon.archived_end(name) == end for name, end in ends.items()))
            gateway.process.send_signal(signal.SIGSTOP)
            logs[0].roll()
            eventually(lambda: "store:" in daemon.get("/readyz")[1])
            assert daemon.get("/healthz") == (200, "ok\n")
            ends = {log.partition: log.roll() for log in logs}
            bases = {name: [base for base, _ in rolled_ranges(log_dir, name)] for name in PARTITIONS}
            wanted = [f"{name}/{base:020d}.log" for name in PARTITIONS for base in bases[name][1:]]
            eventually(lambda: open_logs(daemon, log_dir) == wanted)
            for name in PARTITIONS:  # As retention does, from the log's beginning.
                for base in bases[name]:
                    (log_dir / name / f"{base:020d}.log").unlink()
            eventually(lambda: daemon.metric("pinned_deleted_bytes") > 0)
            assert open_logs(daemon, log_dir) == [f"{name} (deleted)" for name in wanted]
            gateway.process.send_signal(signal.SIGCONT)
            eventually(lambda: all(daemon.archived_end(name) == end for name, end in ends.items()))
            eventually(daemon.is_ready)
            eventually(lambda: daemon.metric("pinned_deleted_bytes") == 0)
            assert daemon.process.stop() == 0
            reported = [event["event"] for event in daemon.events() if event["event"].startswith("store_")]
            assert reported == ["store_not_responding", "store_responding"]
        with store_of(settings) as store:
            states = archived_states(store)
    for name in PARTITIONS:
        expected = [(base, end) for base, end in rolled_ranges(LOGS, name) if end <= ends[name]]
        assert (ranges(states[name]), states[name].holes) == (expected, ())
