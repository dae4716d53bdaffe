"""Whether the pages of an SQLite file are sound."""

from __future__ import annotations

import sqlite3


def require_sound_pages(connection: sqlite3.Connection) -> None:
    """Raise DatabaseError for damage that SQLite would find only when it comes across it."""
    (finding,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if finding != "ok":
        damage = sqlite3.DatabaseError(finding)
        damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damage
