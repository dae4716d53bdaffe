"""What a copy task hears of: how each of its effects ended, and that the process is to stop."""

from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from sidecar.errors import SidecarError
from sidecar.partition.effects import Effect

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Answered(Generic[Result]):
    """An effect was carried out. `result`: the answer that the effect names, None where it names none."""

    effect: Effect
    result: Result


@dataclass(frozen=True, slots=True)
class StepFailed:
    """An effect could not be carried out. Of a commit: its put was not sent, unless the event is one of those below."""

    effect: Effect
    error: SidecarError


class CommitLost(StepFailed):
    """Another writer has the commit number. A later plan goes on with the uploads on top of that writer's commit."""


class CommitRefused(StepFailed):
    """`append` has proven that no commit names the slots."""


class CommitUnknown(StepFailed):
    """The put was sent, and nothing proves whether it took hold."""


@dataclass(frozen=True, slots=True)
class NotBegun:
    """An effect of the preparation was not begun, because the process is to end."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The process is to end: what is uploaded is committed, nothing else is begun."""


Event: TypeAlias = Answered[Any] | StepFailed | NotBegun | StopRequested
