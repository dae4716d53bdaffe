"""What `verify` shows: one row per partition, and the problems; only this is kept of what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.text import Text

    from sidecar.verify.findings import PartitionVerification

_OF_OBJECTS: Final = {"missing_object", "size_mismatch", "checksum_mismatch", "corrupt_content"}


class VerificationTable:
    """Takes one verification after the other."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._problems: list[str] = []
        self._remarks: list[str] = []
        self._holes: list[str] = []
        self._of_objects = False
        self.has_mismatch = False
        self.has_unread = False
        self.store_failed = True
        """Whether the store gave nothing of any partition."""

    @property
    def is_empty(self) -> bool:
        """Whether there was none."""
        return not self._rows

    def add(self, found: PartitionVerification) -> None:
        """Keep what is shown of it."""
        row = found.row
        states = [str(segment.state) for segment in found.segments]
        counts = " ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        offsets = (row.start_offset, row.end_offset)
        name = f"{row.topic}-{row.partition}"
        self._rows.append((name, *offsets, counts, len(found.orphans), len(row.holes), len(found.problems)))
        self._holes += [f"{name} {hole}" for hole in row.holes]
        if row.remark:
            self._remarks.append(row.remark)
        for problem in found.problems:
            self._of_objects |= str(problem.kind) in _OF_OBJECTS
            self._problems.append(problem.what if problem.key in problem.what else f"{problem.key}: {problem.what}")
        self.has_unread |= found.is_unread
        self.store_failed &= row.store_failed
        self.has_mismatch |= not found.is_sound and not found.is_unread

    def show(self, url: str, *, colors: bool) -> None:
        """On stdout the table, on stderr the problems and what to do about them."""
        from sidecar.cli.output import print_table, remark

        columns = ["partition", "from#", "to#", "segments", "orphaned objects#", "verdict"]
        rows = [(*shown, _verdict(holes, problems)) for *shown, holes, problems in self._rows]
        print_table(f"Verification of {url}", columns, rows, colors=colors)
        for problem in self._problems:
            remark(f"problem: {problem}")
        for hole in self._holes:
            remark(f"recorded as lost: {hole}")
        for text in self._remarks:
            remark(text)
        if self._of_objects:
            remark(
                "restore what is missing or damaged from a replica of the bucket or an earlier version, then verify again"
            )


def _verdict(holes: int, problems: int) -> Text:
    from rich.text import Text

    if problems:
        return Text(f"{problems} problem{'s' if problems > 1 else ''}", "red")
    return Text(f"{holes} recorded holes", "yellow") if holes else Text("sound", "green")
