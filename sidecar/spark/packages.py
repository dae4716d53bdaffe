"""An archive of this program and all it imports, for the executors of a cluster whose machines do not have it."""

import re
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final

from isal import igzip

import producer_state
import sidecar
from sidecar.errors import SettingsError, StagingFull

_PROGRAM: Final = "tiered-sidecar"
_OF_SPARK: Final = frozenset({"pyspark", "py4j"})
"""Executors have their own, of the version of their JVM."""
_OURS: Final = (sidecar, producer_state)
_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_OF_AN_EXTRA: Final = re.compile(r";.*\bextra\s*==")
_ENDING: Final = ".tar.gz"


def pack_packages(out: Path) -> tuple[str, ...]:
    """Write a `.tar.gz` that Spark unpacks (`spark.worker_packages`), and say which distributions are in it.

    An existing file is replaced when all is written.

    Good for machines with this machine's kind of processor, C library and minor version of Python.
    Raises SettingsError for another name, StagingFull if it cannot be written.
    """
    if not out.name.endswith(_ENDING):
        raise SettingsError(f"{out}: Spark chooses by the name how to unpack it: end it in {_ENDING}")
    found = _closure()
    temporary = out.with_name(f".{out.name}.tmp")
    try:
        packer: Any = igzip.IGzipFile  # isal has no types
        with packer(temporary, "wb", compresslevel=1) as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
            for name, path in _files(found):
                archive.add(path, name, recursive=False)
        temporary.replace(out)
        return tuple(sorted(found))
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StagingFull(f"{out}: cannot be written: {error.strerror or error}") from error


def _closure() -> dict[str, Distribution]:
    """This program's distribution and those it requires, by normal name."""
    found: dict[str, Distribution] = {}
    waiting = [_PROGRAM]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found or name in _OF_SPARK:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # For another platform or Python.
        for requirement in found[name].requires or ():
            match = _REQUIREMENT.match(requirement)
            if match and not _OF_AN_EXTRA.search(requirement):
                waiting.append(match[1])
    return found


def _files(found: dict[str, Distribution]) -> Iterator[tuple[str, Path]]:
    for name, packed in found.items():
        if name == _PROGRAM:
            continue  # Installed for development it lists none of its files.
        for file in packed.files or ():
            path = Path(str(packed.locate_file(file)))
            # Not the scripts next to the packages, and no bytecode, which names the path it was compiled at.
            if ".." not in file.parts and "__pycache__" not in file.parts and path.is_file():
                yield str(file), path
    for package in _OURS:
        folder = Path(str(package.__file__)).parent
        # With compiled kernels: an executor would work for half a minute before it has its own.
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                yield str(path.relative_to(folder.parent)), path
