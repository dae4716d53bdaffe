"""The one layer that repeats requests to a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, stop_after_attempt

from sidecar.clock import Clock
from sidecar.errors import ObjectDamaged, StoreUnavailable
from sidecar.randomness import Randomness
from sidecar.store_settings import RetrySettings

Answer = TypeVar("Answer")
_DOUBLINGS_MAX = 30


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
        """The answer of the first attempt that succeeds, or the error of the last one."""

        def wait_after(state: RetryCallState) -> float:
            return self.wait_s(state.attempt_number)

        retrying = Retrying(
            retry=_may_succeed_next_time,
            stop=stop_after_attempt(self.attempts),
            wait=wait_after,
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
