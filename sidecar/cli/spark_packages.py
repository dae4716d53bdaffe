"""`spark-packages`: this program for the executors of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sidecar.cli.options import GlobalOptions
from sidecar.cli.output import print_answer, remark, size


def spark_packages(
    options: GlobalOptions,
    out: Annotated[Path, typer.Argument(metavar="OUT.tar.gz", help="The archive to write.", show_default=False)],
) -> int:
    """Pack this program and all it needs for executors that do not have it; name the file by spark.worker_packages.

    Executors need Spark's own Python packages and a Python of the same minor version on the same kind of machine.
    """
    from sidecar.spark.packages import pack_packages

    packed = pack_packages(out)
    if options.json:
        facts = {"path": str(packed.path), "size_bytes": packed.size_bytes, "distributions": packed.distributions}
        print_answer("spark_packages", facts)
    else:
        remark(f"wrote {packed.path}, {size(packed.size_bytes)}: {len(packed.distributions)} distributions")
    return 0
