"""Open descriptors of this process, by where they lead."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def open_below(directory: Path) -> list[str]:
    """What this process holds open below a directory, files that were deleted there too.

    How many descriptors there are in all tells nothing: what earlier tests left to the garbage collector ends whenever it likes.
    """
    links: list[str] = []
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208 - only the names
        with suppress(FileNotFoundError):  # The listing's own, and those of other threads.
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))  # noqa: PTH115 - some tests replace methods of Path
    return [link for link in links if link.startswith(f"{directory}/")]
