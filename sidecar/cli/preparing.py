"""`prepare` and `spark-packages`: what images, and machines that start often, have made beforehand."""

import os
from pathlib import Path
from subprocess import CalledProcessError
from typing import Annotated

import typer

from sidecar.cli.options import NO_ARCHIVE, GlobalOptions
from sidecar.cli.output import print_answer, remark, size
from sidecar.errors import StagingFull

_PRELOADED = "sidecar.rewriting.preloaded"


def prepare(
    options: GlobalOptions,
    force: Annotated[
        bool, typer.Option("--force", help="Write the class archive again even if a matching one exists.")
    ] = False,
) -> int:
    """Compile all kernels and archive the classes that Spark loads, into the user's cache: later starts take half the
    time. Run it when you build an image, as the user of the container. The cache is in $XDG_CACHE_HOME or ~/.cache, the
    kernels of Spark's workers in $NUMBA_CACHE_DIR or next to the program. Run it again after a change of Java or of this
    program. With a linker (the package binutils) the kernels of all other processes become a library, which needs no
    compiler: 110 MB less memory, and a third of a second less at each start.
    """
    _build_libraries()  # Before anything calls a kernel, which would search for them.
    from sidecar.rewriting import preloaded
    from sidecar.spark.java import java_home
    from sidecar.spark.launcher import archive_path

    settings = options.settings({"store.url": NO_ARCHIVE}, calm=True)
    preloaded.warm_up()
    remark("all kernels are compiled; next, the classes that Spark loads")
    home = java_home(settings.spark.java_home, os.environ)
    archive = archive_path(home, os.environ)
    made = force or not archive.exists()
    if made:
        _train(options, archive)
    if options.json:
        found = {"class_archive": str(archive), "size_bytes": archive.stat().st_size, "made": made}
        print_answer("preparation", found)
    else:
        remark(f"{archive}: {'written' if made else 'there already'}, {archive.stat().st_size // 1_000_000} MB")
    return 0


def _build_libraries() -> None:
    from producer_state import kernel_build, kernel_library
    from sidecar.compaction import library as compaction
    from sidecar.logformat import library as logformat

    for kernels in (kernel_library.LIBRARY, logformat.LIBRARY, compaction.LIBRARY):
        try:
            path = kernel_build.build(kernels)
            if path is not None:
                remark(f"{path}: library of kernels, {path.stat().st_size // 1000} kB")
            else:
                remark(
                    f"there is no linker ({' or '.join(kernel_build.LINKERS)}), so each process loads the "
                    "compiler of the kernels"
                )
        except (OSError, CalledProcessError) as error:
            remark(f"no library of the kernels can be built, so each process loads their compiler: {error}")


def _train(options: GlobalOptions, archive: Path) -> None:
    """A compaction in small, by a JVM that writes down which classes it needed."""
    from sidecar.compaction.rules import CompactionRules
    from sidecar.discovery.partition_directory import named_partition
    from sidecar.logformat.bodies.building import build_batch
    from sidecar.logformat.bodies.record import Record
    from sidecar.rewriting.directory import compact_directory
    from sidecar.snapshots.jobs import Forgetting
    from sidecar.spark.embedded import EmbeddedSpark
    from sidecar.spark.engine import SparkEngine
    from sidecar.spark.java import SparkUnavailable
    from sidecar.spark.scratch import Scratch

    settings = options.settings({"store.url": NO_ARCHIVE, "spark.master": "local[1]"}, calm=True)
    try:
        with Scratch(archive.parent, "prepare") as directory:
            partition, written = directory / "training-0", directory / "classes.jsa"
            partition.mkdir()
            for offset in range(3):
                (partition / f"{offset:020d}.log").write_bytes(build_batch([Record(offset, 0, b"k", b"v")]))
            with EmbeddedSpark(settings.spark, preload=[_PRELOADED], train=written) as spark:
                compact_directory(
                    named_partition(partition),
                    None,
                    CompactionRules(0),
                    SparkEngine(spark),
                    Forgetting(0, None),
                    hash_key=bytes(16),
                )
            if not written.exists():
                raise SparkUnavailable(
                    "the JVM wrote no class archive: it needs a HotSpot JDK 17 or newer, and SPARK_HOME unset"
                )
            written.replace(archive)
    except (OSError, StagingFull) as error:
        raise StagingFull(
            f"no class archive was written: {error}; set XDG_CACHE_HOME to another cache directory"
        ) from error


def spark_packages(
    options: GlobalOptions,
    out: Annotated[Path, typer.Argument(metavar="OUT.tar.gz", help="The archive to write.", show_default=False)],
) -> int:
    """Pack this program and its dependencies for executors that do not have it; set spark.worker_packages to the file.
    Executors need Spark's own Python packages and a Python of the same minor version on the same kind of machine.
    """
    from sidecar.spark.packages import pack_packages

    packed, size_bytes = pack_packages(out), out.stat().st_size
    if options.json:
        print_answer("spark_packages", {"path": str(out), "size_bytes": size_bytes, "distributions": packed})
    else:
        remark(f"wrote {out}, {size(size_bytes)}: {len(packed)} distributions")
    return 0
