"""How long a fresh 4.3.0 broker takes to recover segments after an unclean shutdown, from its own log lines."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path

from benchmarks.hosting import MeasuredBroker
from benchmarks.segments import TOPIC

LINE_TIME = re.compile(r"^\[([0-9-]+ [0-9:]+,[0-9]+)\]")


def recovery_s(log_dir: Path, directory: Path, segments: int) -> float:
    """Seconds that it takes for these segments, all but the first.

    Args:
        log_dir: with the partition, as `benchmarks.segments` writes it; its files are linked.
        directory: the broker's own, fresh.
        segments: rolled ones, without the first.
    """
    broker = MeasuredBroker(directory)
    broker.take_over(log_dir / f"{TOPIC}-0")
    (broker.log_dirs[0] / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (broker.log_dirs[0] / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    with broker:
        return _seconds(broker.log_text(), segments)


def _seconds(log_text: str, segments: int) -> float:
    lines = [
        line
        for line in log_text.splitlines()
        if f"{TOPIC}-0" in line and ("Recovering unflushed segment" in line or "Completed load" in line)
    ]
    stamps = [datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S,%f") for line in lines if (match := LINE_TIME.match(line))]  # noqa: DTZ007 - differences only
    # First line: the first segment begins; then one line per segment; the empty active one; the end of the load.
    if len(stamps) < segments + 2:
        raise RuntimeError(f"the broker's log has {len(stamps)} of the expected lines:\n" + "\n".join(lines))
    return (stamps[segments + 1] - stamps[1]).total_seconds()
