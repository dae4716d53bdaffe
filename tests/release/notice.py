"""Writes `NOTICE`, the third-party software of the image: `make notice`.

Packages and versions are those of `requirements-image.lock`, for the image's Python on Linux. Licences are what the packages
declare in their installed metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
NOTICE = ROOT / "NOTICE"
LOCK = ROOT / "requirements-image.lock"
_IMAGE = {
    "python_version": "3.11",
    "python_full_version": "3.11.2",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "os_name": "posix",
}
"""Debian 12's Python: `requirements-image.lock` has other packages for other systems, too."""

_HEAD = """\
tiered-sidecar
Copyright 2026 The tiered-sidecar authors

Licensed under the Apache License, Version 2.0; see LICENSE.

The source archive and the wheel contain no third-party software. The container image contains the software below,
unchanged except that files which are not needed are removed. Paths are paths in the image.

1. Debian packages. Licences: /usr/share/doc/PACKAGE/copyright.

2. The Java runtime in /opt/java: modules of Debian's openjdk-17, GPL-2.0-only WITH Classpath-exception-2.0.
   Licences: /opt/java/copyright.

3. The Java libraries of Apache Spark in pyspark/jars. Licences: {spark}.dist-info/licenses (LICENSE names
   each library, NOTICE has the notices of all) and pyspark/licenses.

4. These Python packages below /opt/tiered-sidecar/lib. Licences and notices: their *.dist-info folders. crc32c
   is a library under the LGPL; replace it in its folder if you want to use another version.

"""


def requirements() -> Iterator[Requirement]:
    """The packages of the image, pinned, in the order of the lock."""
    for line in re.findall(r"^([A-Za-z0-9].*?) ?\\?$", LOCK.read_text(encoding="utf-8"), re.MULTILINE):
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate(_IMAGE):
            yield requirement


def licence(name: str) -> str:
    """What the installed package declares: as an SPDX expression if it does so, else in its own words. Raises ValueError."""
    metadata = distribution(name).metadata
    declared = str(metadata.get("License-Expression") or metadata.get("License") or "")
    try:
        return canonicalize_license_expression(declared)
    except InvalidLicenseExpression:
        classifiers = [str(found) for found in metadata.get_all("Classifier") or []]
        named = [found.rpartition(" :: ")[2] for found in classifiers if found.startswith("License :: ")]
        if not (named or declared):
            raise ValueError(f"{name} declares no licence") from None
        return " or ".join(named) or declared.splitlines()[0]


def notice() -> str:
    """The text of `NOTICE`."""
    rows = [(found.name, str(found.specifier).removeprefix("=="), licence(found.name)) for found in requirements()]
    versions = {name: version for name, version, _ in rows}
    head = _HEAD.format(spark=f"pyspark-{versions['pyspark']}")
    return head + "".join(f"   {name:<20} {version:<14} {text}\n" for name, version, text in rows)


if __name__ == "__main__":
    NOTICE.write_text(notice(), encoding="utf-8")
