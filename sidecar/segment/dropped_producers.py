"""The note of a restore without producer state, for the sidecar that archives that log: up to here no producer is
known, on purpose.

A plain file in the partition's directory. Brokers take no notice of names that they do not know, and delete it with the log.
Source: LogLoader.load, ProducerStateManager.loadSnapshots.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sidecar.archive.keys import OFFSET_MAX
from sidecar.event_log import EVENTS
from sidecar.logformat.files import read_regular
from sidecar.model import ArchivedSegment

NAME: Final = "restored-without-producers.json"
_VERSION: Final = 1
_BYTES_MAX: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Dropped:
    """The content of a note. `below_offset`: no producer is known below, 0 where there is no note.

    `bridged_offsets`: ends of what is lost below it. Transactions that are open there went on, those that may have ended among
    the lost offsets have markers there; of any other gap that is not so.
    """

    below_offset: int = 0
    bridged_offsets: frozenset[int] = frozenset()


NOTHING_DROPPED: Final = Dropped()


def begins_anew(lower: ArchivedSegment, upper: ArchivedSegment) -> bool:
    """Whether the log of `upper` was restored, up to its base, without the producers that the archive has below."""
    return upper.snapshot.start_offset == upper.base_offset and lower.snapshot.start_offset is not None


def leaves_all_out(segment: ArchivedSegment) -> bool:
    """Whether the log of this segment was restored without producers, up to the segment's end at least."""
    return segment.snapshot.start_offset == segment.end_offset


def dropped_note(below_offset: int, bridged_offsets: Iterable[int] = ()) -> bytes:
    """The file's content for a log whose producers below an offset, its end, were left out. See `Dropped`."""
    found: dict[str, object] = {"version": _VERSION, "below_offset": below_offset}
    if bridged := sorted(bridged_offsets):
        found["bridged_offsets"] = bridged
    return json.dumps(found).encode() + b"\n"


def dropped_producers(directory: Path) -> Dropped:
    """What the note in a partition's directory says. A file that cannot be read is ignored, and logged."""
    path = directory / NAME
    try:
        found = json.loads(read_regular(path, _BYTES_MAX))
        version, offset, bridged = found["version"], found["below_offset"], found.get("bridged_offsets", [])
    except FileNotFoundError:
        return NOTHING_DROPPED
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        _tell(path, str(error) or type(error).__name__)
        return NOTHING_DROPPED
    if version == _VERSION and isinstance(bridged, list) and all(_is_offset(each) for each in (offset, *bridged)):
        return Dropped(offset, frozenset(bridged))
    _tell(path, f"version {version!r:.40}, below_offset {offset!r:.40}, bridged_offsets {bridged!r:.40}")
    return NOTHING_DROPPED


def _is_offset(value: object) -> bool:
    return type(value) is int and 0 <= value <= OFFSET_MAX


def _tell(path: Path, reason: str) -> None:
    EVENTS.warning(
        "dropped_producers_note_unreadable",
        path=str(path),
        reason=reason,
        effect="producers below the log's restored end count as known: write it again (docs/reference/restore.md), or delete it",
    )
