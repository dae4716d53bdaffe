"""The one layer that repeats requests to a store, and whether the store answers at all."""

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from tenacity import RetryCallState, Retrying, stop_after_attempt

from sidecar.clock import Clock
from sidecar.errors import ObjectDamaged, OutcomeUnknown, SidecarError, StoreUnavailable
from sidecar.randomness import Randomness
from sidecar.store_settings import RetrySettings

Answer = TypeVar("Answer")
_DOUBLINGS_MAX = 30
SILENT_S: Final = 10.0
"""A store that is busy may refuse for a moment; one that has not answered any request for so long is away."""
FORGOTTEN_S: Final = 600.0
"""Without a request for so long, far longer than a partition's backoff, nothing has waited either."""


class Retrier:
    """Repeats what failed with StoreUnavailable, after random waits that grow; other errors are raised at once.

    OutcomeUnknown is not repeated: only a caller that knows how to read back may decide what happened.
    """

    def __init__(self, settings: RetrySettings, clock: Clock, randomness: Randomness) -> None:
        self.attempts = settings.attempts
        self._settings = settings
        self._clock = clock
        self._randomness = randomness

    def wait_s(self, failures: int) -> float:
        """How long to wait after the n-th failure in a row (n from 1): uniform below a bound that doubles."""
        bound_s = self._settings.wait_s_first * 2.0 ** min(failures - 1, _DOUBLINGS_MAX)
        return self._randomness.uniform(0, min(bound_s, self._settings.wait_s_max))

    def pause(self, failures: int) -> None:
        self._clock.sleep_s(self.wait_s(failures))

    def run(self, send: Callable[[], Answer]) -> Answer:
        retrying = Retrying(
            retry=_may_succeed_next_time,
            stop=stop_after_attempt(self.attempts),
            wait=lambda state: self.wait_s(state.attempt_number),
            sleep=self._clock.sleep_s,
            reraise=True,
        )
        try:
            return retrying(send)
        except StoreUnavailable as error:
            raise error.after(self.attempts) from error


def _may_succeed_next_time(state: RetryCallState) -> bool:
    if state.outcome is None:
        return False
    error = state.outcome.exception()
    # Bytes changed on the way may arrive intact the next time; a store that disagrees on checksums will not change its mind.
    return isinstance(error, StoreUnavailable) or (isinstance(error, ObjectDamaged) and state.attempt_number == 1)


class StoreLiveness:
    """Of all requests to one store, attempt by attempt. Thread-safe.

    The end of a call comes too late: each may be tried several times, and each try may wait for as long as the settings allow.
    """

    def __init__(self, clock: Clock, tell: Callable[[str | None], None] = lambda _why: None) -> None:
        """Args: tell: is given what the first request met when the store falls silent, and None when it answers again."""
        self._clock = clock
        self._tell = tell
        self._lock = threading.Lock()
        self._under_way = 0
        self._waits_since_s: float | None = None
        self._first_why: str | None = None
        self._ended_s = -math.inf
        self._is_silent = False

    def is_silent(self) -> bool:
        """Whether requests have been waiting for `SILENT_S`, and the last one that ended had no answer."""
        with self._lock:
            return self._is_silent

    @contextmanager
    def asked(self) -> Iterator[None]:
        """One attempt at one request lasts as long as this."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            if self._waits_since_s is None or (not self._under_way and now_s - self._ended_s >= FORGOTTEN_S):
                self._waits_since_s, self._first_why = now_s, None
            self._under_way += 1
        why: str | None = None
        is_answered = False
        try:
            yield
        except (StoreUnavailable, OutcomeUnknown) as error:
            is_answered = isinstance(error, StoreUnavailable) and error.is_answered
            why = str(error)
            raise
        except SidecarError:
            is_answered = True  # It said no, which is an answer.
            raise
        else:
            is_answered = True
        finally:
            self._ended(why, is_answered=is_answered)

    def _ended(self, why: str | None, *, is_answered: bool) -> None:
        """`why`: what the request met instead of an answer, None where that is not known."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            self._under_way -= 1
            self._ended_s = now_s
            if is_answered:
                self._waits_since_s, self._first_why = now_s if self._under_way else None, None
                was_silent, self._is_silent = self._is_silent, False
                if was_silent:
                    self._tell(None)
            elif why is not None and self._waits_since_s is not None and not self._is_silent:
                # A later request may only clean up after the first one.
                self._first_why = self._first_why or why
                self._is_silent = now_s - self._waits_since_s >= SILENT_S
                if self._is_silent:
                    self._tell(self._first_why)
