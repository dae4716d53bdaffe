"""The command line: arguments become settings, settings go into one call, its answer goes to stdout.

Data goes to stdout, everything else to stderr. Whatever is slow to import is imported by the command that needs it.
"""

from __future__ import annotations


def main() -> None:
    """Entry point of `tiered-sidecar`; ends the process with one of the documented exit codes."""
    from sidecar.cli.app import app

    app(prog_name="tiered-sidecar")


__all__ = ["main"]
