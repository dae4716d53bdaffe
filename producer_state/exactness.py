"""When a rebuilt producer state is exact: the one rule of `rebuild`, `heal`, `check`, `backfill`, `run` and compaction.

Exact: the state names every producer that the log below it, from offset 0 on, names and that a broker would still
know, with the values of that log. Otherwise a live broker may have known more. A state is exact if all of these hold:

- The beginning is known: the log begins at offset 0, or a snapshot that names producers exists at its start.
  An empty snapshot at a log's start proves nothing: a broker that finds no snapshots writes empty ones unread.
- No cleaner has been in the batches that were replayed: what it removed cannot be replayed.
- A replay that began at a snapshot inside the log is as exact as that snapshot, see `knows_below`.

Open transactions are not part of it: a state whose open transactions are not known is never written.
"""

from __future__ import annotations

from producer_state.table import ProducerTable


def knows_beginning(state_at_start: ProducerTable) -> bool:
    """Whether nothing below the start of a replay is unknown: the log begins there at 0, or a snapshot names producers."""
    return state_at_start.end_offset == 0 or len(state_at_start) > 0


def knows_below(*, recorded: bool | None, beginning_known: bool, compacted: bool) -> bool:
    """Whether nothing below a snapshot inside a log is unknown to who begins there.

    An archive records that. On disk (`recorded` None) an inexact file of this program cannot be distinguished from a
    broker's. There, all snapshots of a log are exact only if no replay of it is inexact: its beginning is known, and no cleaner
    was in it.
    """
    return recorded if recorded is not None else beginning_known and not compacted


def is_exact(*, beginning_known: bool, cleaned: bool) -> bool:
    """See the module. Of a state that goes on from an archived one, `beginning_known` is whether that one is exact."""
    return beginning_known and not cleaned
