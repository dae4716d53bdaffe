"""Runs the product as a user does: in a process of its own, with an environment that holds nothing of ours."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from typer.testing import CliRunner

from sidecar.cli.app import app

TIMEOUT_S = 300
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended."""

    code: int
    out: str
    err: str

    def lines(self) -> list[Any]:
        """Standard output as JSON, line by line."""
        return [json.loads(line) for line in self.out.splitlines()]


def command(*arguments: str | Path) -> list[str]:
    """Arguments for a process."""
    return [sys.executable, "-m", "sidecar", *(str(argument) for argument in arguments)]


def environment(**variables: str) -> dict[str, str]:
    """Ours, without settings and colors, and with those given."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("TIERED_", "AWS_", "FORCE_COLOR"))
    }
    return {**kept, "COLUMNS": "120", "AWS_EC2_METADATA_DISABLED": "true", **variables}


def in_this_process(
    *arguments: str | Path, variables: Mapping[str, str] | None = None, stdin: str | None = None
) -> Outcome:
    """The same without a process of its own: much faster. What it does to the logs of this process is undone.

    Of the environment it sees no settings but those of `variables`.
    """
    root = logging.getLogger()
    handlers, level, configured = list(root.handlers), root.level, structlog.get_config()
    try:
        ours: dict[str, str | None] = {name: None for name in os.environ if name.startswith("TIERED_")}
        ours.update(variables or {})
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin, env=ours)
    finally:
        logging.captureWarnings(capture=False)
        root.handlers[:], root.level = handlers, level
        structlog.configure(**configured)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


def tiered_sidecar(*arguments: str | Path, variables: Mapping[str, str] | None = None) -> Outcome:
    """Run to the end."""
    done = subprocess.run(
        command(*arguments),
        capture_output=True,
        check=False,
        timeout=TIMEOUT_S,
        cwd=ROOT,
        env=environment(**(variables or {})),
    )
    return Outcome(done.returncode, done.stdout.decode(), done.stderr.decode())
