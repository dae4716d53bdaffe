"""How many files `run` may open: each segment that is held open against retention takes one."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

OPEN_FILES_WANTED: Final = 16_384
"""Most containers begin with a soft limit of 1,024, and a hard one far above."""


def allowed_open_files() -> int:
    """The soft limit that `allow_open_files` comes to.

    Source: RLIMIT_NOFILE in getrlimit(2): the soft limit is ours to raise up to the hard one.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return OPEN_FILES_WANTED
    return max(soft, OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(OPEN_FILES_WANTED, hard))


def allow_open_files() -> None:
    """Raise this process's soft limit as far as it is wanted and allowed; never lower it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < allowed_open_files():
        with suppress(OSError, ValueError):  # A sandbox may forbid it: fewer segments are held then.
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed_open_files(), hard))
