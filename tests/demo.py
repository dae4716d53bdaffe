"""`make demo`: archives a log directory that a real 2.7.2 broker wrote, shows coverage, and verifies every byte.

The directory lacks most producer snapshots, as brokers before 2.8 leave it; watch the column "rebuilt".
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.golden import golden

ARCHIVE = Path("demo-archive")


def show(*arguments: str) -> int:
    """Print and run one command of the product, as a user would type it."""
    print(f"\n$ tiered-sidecar {' '.join(arguments)}", flush=True)
    return subprocess.run([sys.executable, "-m", "sidecar", *arguments], check=False).returncode


def main() -> int:
    """Run the four commands; the exit code is the first one that is not 0."""
    if ARCHIVE.exists():
        shutil.rmtree(ARCHIVE)
    log_dir = golden("2.7.2") / "logs"
    with tempfile.TemporaryDirectory(prefix="tiered-sidecar-demo-") as state:
        print(f"A log directory written by a real Kafka 2.7.2 broker: {log_dir}")
        archive = f"--archive={ARCHIVE}"
        code = show(
            "backfill",
            "--log-dir",
            str(log_dir),
            archive,
            "--assume-leader",
            "--state-dir",
            state,
            "--log-level=warning",
        )
        code = code or show("status", archive)
        return code or show("verify", archive, "--deep")


if __name__ == "__main__":
    sys.exit(main())
