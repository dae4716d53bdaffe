"""Open descriptors of a process, by where they lead."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def open_below(directory: Path, pid: int | str = "self") -> list[str]:
    """What a process, by default this one, holds open at or below a directory; what was deleted ends in " (deleted)".

    How many descriptors there are in all tells nothing: what earlier tests left to the garbage collector ends whenever it likes.
    """
    links: list[str] = []
    for descriptor in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - only the names
        with suppress(FileNotFoundError):  # Closed since: the listing's own, and those of other threads.
            links.append(os.readlink(f"/proc/{pid}/fd/{descriptor}"))  # noqa: PTH115 - some tests replace methods of Path
    return [link for link in links if Path(link.removesuffix(" (deleted)")).is_relative_to(directory)]
