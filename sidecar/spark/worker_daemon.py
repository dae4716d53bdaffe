"""The process from which Spark forks its Python workers, by the property `spark.python.daemon.module`.

pyspark's own, but with the kernels loaded before the first fork: once, not once per worker. And frozen: a worker runs the
garbage collector after every task, which is slow while it has to visit everything that was imported.
"""

import gc
import importlib
import os
from collections.abc import Callable
from typing import Any

from pyspark import daemon

from sidecar.spark.properties import PRELOAD_VARIABLE
from sidecar.spark.sealing import keep_keys_here


def main() -> None:
    import pyspark.worker  # noqa: F401  each worker would import it for itself

    for name in os.environ.get(PRELOAD_VARIABLE, "").split(","):
        if name:
            importlib.import_module(name)
    keep_keys_here()
    gc.collect()
    gc.freeze()
    daemon.worker = _quiet(daemon.worker)  # type: ignore[assignment]  # its parameters are not asked for by name
    daemon.manager()


def _quiet(worker: Callable[[Any, bool], int]) -> Callable[[Any, bool], int]:
    """The same, but it ends without a stack on stderr when the JVM has ended, with or without what it wanted."""

    def quiet(connection: Any, authenticated: bool) -> int:
        try:
            return worker(connection, authenticated)
        except BrokenPipeError:
            # Buffers of a connection that is not read must not be flushed again on the way out.
            os._exit(0)

    return quiet


if __name__ == "__main__":
    main()
