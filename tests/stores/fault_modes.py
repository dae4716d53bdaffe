"""What a network or a store may do wrong, as faults of the proxy, and what the program must make of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from tests.servers.fault_proxy import Break, Fault


@dataclass(frozen=True)
class FaultMode:
    """Faults, and when there are any.

    `at_start`: from before the program starts, else from its first commits on.
    `lasts_s`: how long; otherwise until everything is archived in spite of them.
    `writers`: how many processes archive the same directory.
    `is_refused`: the program must see it when it starts, and end.
    `in_gate`: by `make test`, else by `make store-matrix` alone.
    """

    name: str
    faults: tuple[Fault, ...]
    at_start: bool = True
    lasts_s: float | None = None
    writers: int = 1
    is_refused: bool = False
    in_gate: bool = False

    def fresh_faults(self) -> list[Fault]:
        """They count how often they struck: each run has its own."""
        return [replace(fault) for fault in self.faults]

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def _always(kind: Break, method: str, path_part: str = "", share: float = 1.0, **answer: object) -> Fault:
    return Fault(method, kind, path_part, inf, share=share, **answer)  # type: ignore[arg-type]


_BLACK_HOLE_S = 20.0
_LONG_S = 10.0
_LOST = tuple(_always(Break.RESET_INSTEAD_OF_ANSWER, method, share=0.3) for method in ("PUT", "POST", "DELETE"))
_DENIED = _always(Break.STATUS, "GET", status=403, code="AccessDenied")
_IGNORED = _always(Break.IGNORE_CONDITION, "PUT")
_ACCEPTED = _always(Break.ACCEPT_REFUSED, "PUT")
_HELD = _always(Break.HOLD, "")

MODES = (
    FaultMode("503 SlowDown for 30 % of all requests", (_always(Break.STATUS, "", share=0.3),), in_gate=True),
    FaultMode("answer lost after the store did it, 30 % of PUT, POST and DELETE", _LOST),
    FaultMode(
        "body of an answer cut, Content-Length of the whole, 30 % of GET",
        (_always(Break.CUT_ANSWER, "GET", share=0.3),),
    ),
    FaultMode(
        "body of an answer cut, Content-Length of the cut one, 30 % of GET",
        (_always(Break.SHORT_ANSWER, "GET", share=0.3),),
        lasts_s=_LONG_S,
    ),
    FaultMode("one bit of the body changed, 30 % of PUT", (_always(Break.FLIP_BIT, "PUT", share=0.3),)),
    FaultMode(
        "one bit of the answer changed, 30 % of GET",
        (_always(Break.FLIP_BIT_OF_ANSWER, "GET", share=0.3),),
        at_start=False,
        lasts_s=_LONG_S,
    ),
    FaultMode(
        "500 for 70 % of CompleteMultipartUpload, which succeeded",
        (_always(Break.STATUS_INSTEAD_OF_ANSWER, "POST", "uploadId", share=0.7, status=500, code="InternalError"),),
        at_start=False,
        in_gate=True,
    ),
    FaultMode("412 answered as 200, at start", (_ACCEPTED,), is_refused=True, in_gate=True),
    FaultMode("412 answered as 200, later, two writers", (_ACCEPTED,), at_start=False, lasts_s=_LONG_S, writers=2),
    FaultMode("condition ignored, at start", (_IGNORED,), is_refused=True),
    FaultMode("condition ignored, later, two writers", (_IGNORED,), at_start=False, lasts_s=_LONG_S, writers=2),
    FaultMode(
        "listings 10 s old, two writers", (_always(Break.STALE_LISTING, "GET", "list-type=2"),), False, writers=2
    ),
    FaultMode("403 for each GET, at start", (_DENIED,), lasts_s=_LONG_S),
    FaultMode("403 for each GET, later", (_DENIED,), at_start=False, lasts_s=_LONG_S),
    FaultMode("nothing passes for 20 s, at start", (_HELD,), lasts_s=_BLACK_HOLE_S),
    FaultMode("nothing passes for 20 s, later", (_HELD,), at_start=False, lasts_s=_BLACK_HOLE_S),
)


if __name__ == "__main__":
    print("Left to make store-matrix, faults:", "; ".join(mode.name for mode in MODES if not mode.in_gate))
