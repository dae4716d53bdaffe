"""The command line: arguments become settings, settings go into one call, its answer goes to stdout.

Data goes to stdout, everything else to stderr. Whatever is slow to import is imported by the command that needs it.
"""

import gc
import os
from typing import Final

START_OBJECTS: Final = 150_000
"""What a start makes: modules, classes and the client of a store, none of which is garbage."""


def main() -> None:
    """Entry point of `tiered-sidecar`; ends the process with one of the documented exit codes."""
    collect_after_start()
    # pydantic would read the metadata of every installed package to find its plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # numpy's linear algebra, which nothing here uses, would start a thread for each core, and those spin while they wait.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from sidecar.cli.interrupts import ended_by_signals
    from sidecar.cli.streams import Streams

    streams = Streams()
    try:
        with ended_by_signals():
            from sidecar.cli.app import app

            app(prog_name="tiered-sidecar")
    except SystemExit as end:
        raise streams.finish(end) from None
    finally:
        gc.freeze()  # else the interpreter's end looks for cycles among all that a process has


def collect_after_start() -> None:
    """Let the garbage collector begin when the start is over, and never pass over what is there by then: that takes a tenth of a
    start. Cycles that nothing refers to are a hundredth of it, and stay.
    """
    usual = gc.get_threshold()

    def begin(phase: str, _facts: object) -> None:
        if phase == "start":
            gc.callbacks.remove(begin)
            gc.freeze()  # leaves this first pass nothing to do
            gc.set_threshold(*usual)

    gc.callbacks.append(begin)
    gc.set_threshold(START_OBJECTS)
