"""How much memory this container may take."""

from __future__ import annotations

from pathlib import Path

CGROUP_FILES = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Of cgroups version 2 and 1, as a container sees its own."""
_UNLIMITED_BYTES = 1 << 60


def memory_limit_bytes() -> int | None:
    """The limit of this container, None if there is none or it cannot be read."""
    for file in CGROUP_FILES:
        try:
            text = file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        limit = int(text) if text.isdecimal() else _UNLIMITED_BYTES
        return limit if limit < _UNLIMITED_BYTES else None
    return None
