"""Draws what goes wrong with a process's calls of the store."""

from __future__ import annotations

from random import Random

from tests.histories.faults import CRASH, ERRORS, Fault


def faults_of(random: Random) -> tuple[Fault, ...]:
    """Those of one process, for a while."""
    return tuple(_fault(random) for _ in range(random.choice((0, 1, 1, 2))))


def _fault(random: Random) -> Fault:
    error = random.choice((*ERRORS, CRASH, CRASH, CRASH))
    after, calls = random.random() < 0.5, random.choice((1, 1, 2, 8))
    draw = random.random()
    if draw < 0.2:
        return Fault(error, "put_if_absent", "/commits/", random.randrange(3), calls, after)
    if draw < 0.4:  # Around a commit: whether it stands is what matters most.
        return Fault(error, random.choice(("", "read")), "", random.randrange(3), calls, after, after_commit_put=True)
    if draw < 0.65:
        operations = ("upload", "read", "head", "list", "delete", "put_if_absent", "unfinished_uploads")
        return Fault(error, random.choice(operations), "", random.randrange(4), calls, after)
    first = random.choice((random.randrange(4), random.randrange(8), random.randrange(20)))
    return Fault(error, "", "", first, random.choice((1, 1, 4, 50)), after)
