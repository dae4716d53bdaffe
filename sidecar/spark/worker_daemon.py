"""The process from which Spark forks its Python workers, by the property `spark.python.daemon.module`.

pyspark's own, but with the kernels loaded before the first fork: once, not once per worker. And frozen: a worker runs the
garbage collector after every task, which is dear while it has to look at everything that was imported.
"""

from __future__ import annotations

import gc
import importlib
import os

from pyspark.daemon import manager

from sidecar.spark.properties import PRELOAD_VARIABLE
from sidecar.spark.sealing import keep_keys_here


def main() -> None:
    """Load, freeze, and fork workers until Spark closes our stdin."""
    import pyspark.worker  # noqa: F401  each worker would import it for itself

    for name in os.environ.get(PRELOAD_VARIABLE, "").split(","):
        if name:
            importlib.import_module(name)
    keep_keys_here()
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
