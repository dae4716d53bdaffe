"""What a history may find."""

from __future__ import annotations


class Finding(AssertionError):
    """A rule of the archive was broken. `rule` is a short name by which runs are compared, `detail` is for people."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule, self.detail = rule, detail
