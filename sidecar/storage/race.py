"""Several create-only puts of one key at once: how many does a store let through?

There are two ways of coming at once. A store may check whether the key is free when a put begins, and create the object when it
has the bytes: to that store a put is paused while another one comes and goes. Or it checks late, and the gap is short: to that
store all puts come together. Only the first kind is found for certain; the second one by chance, in many turns.

How many turns: a store that fails in one of ten races is to be missed in less than one of 10^6 starts. All turns miss it with
probability 0.9^n. 0.9^131 = 1.013e-6, 0.9^132 = 9.1e-7: n = 132. Races with paused puts come on top. The alternative, to read
back each own commit, finds an overwritten commit only if the other writer came before that read: it is done besides
(`put_once`), and proves less.

A store may also lock the key before it reads the body (MinIO: erasureObjects.putObject, where there is a condition). There the
other put waits for the paused one, which therefore goes on after a moment.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from threading import Barrier, BrokenBarrierError, Event
from typing import Final, Protocol, runtime_checkable

from sidecar.clock import Clock
from sidecar.errors import ObjectExists, ObjectMissing, OutcomeUnknown, StoreUnavailable, TwoWriters
from sidecar.model import ObjectKey
from sidecar.ports import MIB, ObjectStore

TURNS: Final = 132
"""Races without paused puts; see above."""
WRITERS: Final = 4
_TURNS_OF_ALL: Final = 8
"""With all writers and large bodies, one race after the other; the other races have two writers, and many run at once."""
_HELD_TURNS: Final = 3
"""One would do: the paused puts were there first. A busy server may begin with the last one all the same."""
_ON_THE_WAY_S: Final = 3.0
"""Until each paused put has sent all but its end, at most: a store that reads nothing while it waits may fill the buffers."""
_COME_AND_GONE_S: Final = 1.0
"""For the put without a pause. A store that checks too early answers it at once; the paused ones alone find any other."""
_TOGETHER_S: Final = 5.0
"""For the slowest writer of a race to begin."""
_THREADS: Final = 16
_PUTS: Final = 4
"""Attempts of one put that gets no definite answer, each of which the store's own layer repeats."""
_PAUSE_S: Final = 0.2
_BODIES: Final = [bytes([letter]) * (MIB // 16) for letter in b"abcd"[:WRITERS]]
_PAIR: Final = [bytes([letter]) * 1024 for letter in b"ab"]


@runtime_checkable
class HoldsPuts(Protocol):
    """A store that can stop in the middle of sending."""

    def put_if_absent_held(self, key: ObjectKey, body: bytes, before_last_bytes: Callable[[], None]) -> None:
        """As `ObjectStore.put_if_absent`; each time that all but the body's end has been sent, `before_last_bytes` is called."""


@dataclass(frozen=True, slots=True)
class _Put:
    """How a put ended. `is_sure`: no answer of an attempt was lost, so that `won` is the whole truth."""

    body: bytes
    won: bool
    is_sure: bool


class Race:
    """The writers, each with a thread and so with a connection of its own. Memory: a body for each."""

    def __init__(self, store: ObjectStore, clock: Clock, new_key: Callable[[str], ObjectKey]) -> None:
        """Args: new_key: a fresh key of this name."""
        self._store = store
        self._clock = clock
        self._new_key = new_key
        self._waits_for_held = False
        self._starts: list[Barrier] = []

    def run(self) -> int:
        """All turns, until there are two winners; how many there were.

        Once a put had to wait for paused ones, no more are paused.

        Raises:
            TwoWriters: two puts of one key succeeded.
            OutcomeUnknown, StoreUnavailable: some put has no definite outcome, so that nothing is known.
            StoreError: the store refuses to create.
        """
        pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="probe-race")
        try:
            held = self._held_turns(pool)
            for _ in range(_TURNS_OF_ALL):
                self._settle(*self._begin(pool, _BODIES))
            for turn in [self._begin(pool, _PAIR) for _ in range(TURNS - _TURNS_OF_ALL)]:
                self._settle(*turn)
            return held + TURNS
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for start in self._starts:
                start.abort()  # A writer whose rival was cancelled would wait for it.
            pool.shutdown()

    def _held_turns(self, pool: ThreadPoolExecutor) -> int:
        store, turns = self._store, 0
        if isinstance(store, HoldsPuts):
            while turns < _HELD_TURNS and not self._waits_for_held:
                self._one_while_others_are_held(pool, store)
                turns += 1
        return turns

    def _one_while_others_are_held(self, pool: ThreadPoolExecutor, store: HoldsPuts) -> None:
        key = self._new_key("race")
        first, *others = _BODIES
        on_the_way, proceed = [Event() for _ in others], Event()

        def put_held(body: bytes, reached: Event) -> _Put:
            def wait_in_the_middle() -> None:
                reached.set()
                proceed.wait()

            try:
                return self._put(key, body, lambda: store.put_if_absent_held(key, body, wait_in_the_middle))
            finally:
                # A store may answer before it has the body.
                reached.set()

        try:
            held = [pool.submit(put_held, body, reached) for body, reached in zip(others, on_the_way, strict=True)]
            for reached in on_the_way:
                reached.wait(_ON_THE_WAY_S)
            passing = pool.submit(self._put, key, first, lambda: self._store.put_if_absent(key, first))
            self._waits_for_held = not wait([passing], _COME_AND_GONE_S).done
        finally:
            proceed.set()
        self._settle(key, [passing, *held])

    def _begin(self, pool: ThreadPoolExecutor, bodies: Sequence[bytes]) -> tuple[ObjectKey, list[Future[_Put]]]:
        """All writers of a race put as soon as the last one of them has a thread."""
        key, start = self._new_key("race"), Barrier(len(bodies))
        self._starts.append(start)

        def put(body: bytes) -> _Put:
            with suppress(BrokenBarrierError):
                start.wait(_TOGETHER_S)
            return self._put(key, body, lambda: self._store.put_if_absent(key, body))

        return key, [pool.submit(put, body) for body in bodies]

    def _put(self, key: ObjectKey, body: bytes, put: Callable[[], None]) -> _Put:
        """Put until the outcome is known. After an unknown outcome, the object under the key shows whose put succeeded.

        There are hundreds of puts: if one that is throttled ended them all, a store that throttles would never pass.
        """
        for attempt in range(_PUTS):
            try:
                put()
            except ObjectExists:
                return _Put(body, won=False, is_sure=attempt == 0)
            except (OutcomeUnknown, StoreUnavailable):
                if attempt == _PUTS - 1:
                    raise
                with suppress(ObjectMissing, StoreUnavailable):
                    return _Put(body, won=self._store.read(key) == body, is_sure=False)
                self._clock.sleep_s(_PAUSE_S * 2**attempt)
            else:
                return _Put(body, won=True, is_sure=attempt == 0)
        raise AssertionError("the last attempt returns or raises")

    def _settle(self, key: ObjectKey, writers: Sequence[Future[_Put]]) -> None:
        puts = [writer.result() for writer in writers]
        winners = [put for put in puts if put.won]
        if len(winners) > 1:
            raise TwoWriters(f"of {len(puts)} puts of the same key at once {len(winners)} succeeded")
        if winners and not all(put.is_sure for put in puts):
            with suppress(ObjectMissing):  # `write` and `read` find that the store keeps nothing.
                if self._store.read(key) != winners[0].body:
                    raise TwoWriters(
                        f"of {len(puts)} puts of the same key at once one succeeded, and another replaced it"
                    )
