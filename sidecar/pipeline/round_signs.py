"""What `run` meets between and in its rounds, told to everybody who may want to know: probes, metrics, page and log."""

from __future__ import annotations

import structlog

from sidecar.broker.files import NOT_LEADING
from sidecar.clock import Clock
from sidecar.errors import BrokerUnavailable, SettingsError, SidecarError, StagingFull, StoreError, StoreUnavailable
from sidecar.metrics import Metrics
from sidecar.pipeline.cleaner_watch import CleanerReport
from sidecar.pipeline.round_report import RoundReport
from sidecar.reporting.advice import advised
from sidecar.reporting.health import FIRST_ANSWER, Health
from sidecar.reporting.status_model import StatusModel

_log = structlog.get_logger(__name__)

CLEANER_STALLED = "CleanerStalled"
RIGHT_MISSING = "RightMissing"
ALL_CONDITIONS = ("store", "first_round", "log_dirs", "broker", "leadership", "topics", "state_dir")
"""The first two hold `run` back from its start on, see `conditions_at_start`; the others once it finds that they fail."""
_NOTHING_IS_PINNED = (
    "nothing in the archive changed; nothing is pinned until the store has answered once; retention may delete segments "
    "meanwhile: bring the store back, or raise the retention of the topics"
)
_IS_PINNED = "uploads wait; new segments of partitions whose archive was read are planned and pinned meanwhile"


def conditions_at_start(url: str) -> dict[str, str]:
    """What `run` waits for at its start, and why. `url`: the store's."""
    return {
        "store": f"{FIRST_ANSWER} at {url}",
        "first_round": "it begins once the store has answered; until then no partition is listed, planned or pinned",
    }


class RoundSigns:
    """Conditions of readiness, errors for people, and lines in the log. Of one loop, in its thread but for `store_silent`."""

    def __init__(self, clock: Clock, metrics: Metrics, health: Health, board: StatusModel) -> None:
        self._clock = clock
        self._metrics = metrics
        self._health = health
        self._board = board
        self._cleaner_stalled = False
        self._silence = ""
        self._is_store_usable = False

    def nobody_leads(self) -> None:
        """The settings name nobody who could tell what this broker leads."""
        _log.error("nothing_will_be_archived", reason=NOT_LEADING)
        self._health.unmet("leadership", NOT_LEADING)
        self._board.failed("leadership", SettingsError.__name__, NOT_LEADING)

    def not_usable(self, condition: str, error: SidecarError, next_try_s: float | None) -> None:
        """The store or the log dirs keep the work from beginning. `next_try_s`: None where there will be none."""
        self._metrics.failed(type(error).__name__)
        self._health.unmet(condition, str(error))
        self._board.failed(condition, type(error).__name__, str(error))
        if next_try_s is not None:
            effect = {"effect": _NOTHING_IS_PINNED} if condition == "store" else {}
            _log.error(f"{condition}_not_usable", error=str(error), **effect, next_try_s=next_try_s)

    def store_usable(self) -> None:
        """The log dirs are formatted, and the store passed its probe."""
        self._is_store_usable = True
        self._health.met("log_dirs")
        self._health.met("store")
        self._health.unmet("first_round", "the first check of all partitions is not over")

    def store_silent(self, why: str) -> None:
        """Requests wait for the store, and this is what one of them met; "" once it answers again. For any thread."""
        self._silence = why
        if not why:
            if self._is_store_usable:
                self._health.met("store")
            else:
                self._health.unmet("store", "it answers again; the sidecar checks what it can do")
            _log.info("store_answers_again")
            return
        self._health.unmet("store", why)
        self._board.failed("store", StoreUnavailable.__name__, why)
        _log.warning("store_silent", error=why, effect=_IS_PINNED if self._is_store_usable else _NOTHING_IS_PINNED)

    def round_failed(self, error: SidecarError, broker_away: str) -> None:
        """Not even a look was possible. `broker_away`: why the broker cannot be asked, "" if it can be.

        A disk that dies may take the broker with it: only the very error that tells of the broker is its condition's.
        """
        condition = "broker" if str(error) == broker_away else _condition_of(error)
        self._metrics.failed(type(error).__name__)
        self._health.unmet(condition, str(error))
        self._board.failed(condition, type(error).__name__, advised(error))
        _log.error("round_failed", error=str(error))

    def round_ended(self, report: RoundReport) -> None:
        """A round is over, and this is what it met."""
        self._health.met("state_dir")
        outcomes = sorted([*report.outcomes, *report.resting], key=lambda outcome: outcome.files.topic_partition)
        away = [report.broker_away] if report.broker_away else []
        unreadable = [str(problem.error) for problem in report.problems if problem.topic_partition is None]
        store_errors = [str(outcome.error) for outcome in outcomes if isinstance(outcome.error, StoreError)]
        if silence := self._silence:
            store_errors.append(silence)
        for condition, reasons in (("log_dirs", unreadable), ("store", store_errors), ("broker", away)):
            if reasons:
                self._health.unmet(condition, reasons[0])
            else:
                self._health.met(condition)
        for reason in away:
            self._board.failed("broker", BrokerUnavailable.__name__, reason)
        for right in report.missing_rights:
            self._board.failed("broker", RIGHT_MISSING, right)
        problems = [str(problem.error) for problem in report.problems]
        status = {"round_ended_ms": self._clock.now_ms(), "problems": problems}
        self._health.publish({**status, "missing_rights": list(report.missing_rights)})
        # Last: between two conditions a probe would see a process ready that is not, or a ready one without a status.
        self._health.met("first_round")

    def cleaner(self, report: CleanerReport) -> None:
        """A look at the broker's own cleaner is over."""
        was_stalled, self._cleaner_stalled = self._cleaner_stalled, bool(report.stalled)
        self._metrics.broker.cleaner(
            len(report.stalled),
            report.max_stalled_s,
            report.dirty_bytes,
            report.max_dirty_ratio,
            report.beyond_max_lag,
        )
        self._health.publish_section("broker_cleaner", report.as_json())
        if self._cleaner_stalled and not was_stalled:
            _log.error("broker_cleaner_stalled", finding=report.line)
            self._board.failed("broker", CLEANER_STALLED, report.line)


def _condition_of(error: SidecarError) -> str:
    """What an error that ended a round keeps from being met: the disks are looked at first, and tell of themselves."""
    if isinstance(error, StagingFull):
        return "state_dir"
    if isinstance(error, StoreError):
        return "store"
    return "broker" if isinstance(error, BrokerUnavailable) else "log_dirs"
