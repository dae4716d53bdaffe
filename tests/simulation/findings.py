"""What a schedule found: a broken invariant."""

from __future__ import annotations


class Finding(Exception):
    """`rule`: the name of the invariant. The minimiser keeps it while it shortens a schedule. `detail`: for people."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule, self.detail = rule, detail
