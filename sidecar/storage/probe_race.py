"""Several create-only puts of one key at once: how many does a store let through?

There are two ways of coming at once. A store may look whether the key is free when a put begins, and create the object when it
has the bytes: to that store a put is held open while another one comes and goes. Or it looks late, and the gap is short: to that
store all puts come together. Only the first kind is found for certain; the second one by chance, in many turns.

A store may also lock the key before it reads the body (MinIO: erasureObjects.putObject, where there is a condition). There the
other put waits for the one that is held, which therefore goes on after a moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Barrier, Event
from typing import Protocol, runtime_checkable

from sidecar.errors import ObjectExists, OutcomeUnknown
from sidecar.model import ObjectKey
from sidecar.ports import MIB, ObjectStore

WRITERS = 4
_HELD_TURNS = 3
"""One would do: the puts held open were there first. A busy server may begin with the last one all the same."""
_ON_THE_WAY_S = 3.0
"""Until each held put has sent all but its end, at most: a store that reads nothing while it waits may fill the buffers."""
_COME_AND_GONE_S = 1.0
"""For the put that is not held. Who looks too early answers it at once, and who does not is caught by the held ones alone."""
_TURNS = 8
_BODIES = [bytes([letter]) * (MIB // 16) for letter in b"abcd"[:WRITERS]]

Turn = Callable[[ObjectKey], int]
"""Lets all writers put this key; returns how many of them were told that they created it."""


@runtime_checkable
class HoldsPuts(Protocol):
    """A store that can stop in the middle of sending."""

    def put_if_absent_held(self, key: ObjectKey, body: bytes, before_last_bytes: Callable[[], None]) -> None:
        """As `ObjectStore.put_if_absent`; each time that all but the body's end has been sent, `before_last_bytes` is called."""
        ...


class Race:
    """The writers, each with a thread and so with a connection of its own. Memory: a body for each."""

    def __init__(self, store: ObjectStore, pool: ThreadPoolExecutor) -> None:
        """Args: pool: of `WRITERS` threads at least, none of them in use."""
        self._store = store
        self._pool = pool
        self._waits_for_held = False

    def turns(self) -> Iterator[Turn]:
        """To be taken one after the other, each with another key, until there are two winners.

        Once a put had to wait for held ones, no more are held.
        """
        store = self._store
        if isinstance(store, HoldsPuts):
            for _ in range(_HELD_TURNS):
                if not self._waits_for_held:
                    yield lambda key: self._one_while_others_are_held(store, key)
        for _ in range(_TURNS):
            yield self._all_at_once

    def _one_while_others_are_held(self, store: HoldsPuts, key: ObjectKey) -> int:
        first, *others = _BODIES
        on_the_way, proceed = [Event() for _ in others], Event()

        def put_held(body: bytes, reached: Event) -> bool:
            def wait_in_the_middle() -> None:
                reached.set()
                proceed.wait()

            try:
                return _wins(lambda: store.put_if_absent_held(key, body, wait_in_the_middle))
            finally:
                # A store may answer before it has the body.
                reached.set()

        try:
            held = [
                self._pool.submit(put_held, body, reached) for body, reached in zip(others, on_the_way, strict=True)
            ]
            for reached in on_the_way:
                reached.wait(_ON_THE_WAY_S)
            passing = self._pool.submit(_wins, lambda: self._store.put_if_absent(key, first))
            self._waits_for_held = not wait([passing], _COME_AND_GONE_S).done
        finally:
            proceed.set()
        return sum(future.result() for future in [passing, *held])

    def _all_at_once(self, key: ObjectKey) -> int:
        start = Barrier(WRITERS)

        def put(body: bytes) -> bool:
            start.wait()
            return _wins(lambda: self._store.put_if_absent(key, body))

        return sum(self._pool.map(put, _BODIES))


def _wins(put: Callable[[], None]) -> bool:
    try:
        put()
    except (ObjectExists, OutcomeUnknown):
        return False
    return True
