"""Where each step of a copy task leads, and what its phases mean: for the page about the architecture, and to be checked."""

from __future__ import annotations

from typing import Final

from sidecar.partition import events
from sidecar.partition.copy_task import Phase

MEANINGS: Final = {
    Phase.OPENING: "reads the archive's state",
    Phase.SETTLING: "aborts or resumes uploads of earlier tasks",
    Phase.CHECKING: "compares the local log with the archive",
    Phase.RECORDING_LOSS: "commits which offsets are lost",
    Phase.ARCHIVING: "uploads segments; commits them in offset order",
    Phase.ABANDONING: "after an error: aborts uploads, begins no new ones",
    Phase.CLEARING: "everything is committed: resolves uploads with an unknown outcome",
    Phase.ENDED: "ended, with or without an error",
}

LEADS_TO: Final = {
    (Phase.OPENING, "OpenArchive"): (Phase.SETTLING, Phase.ENDED),
    (Phase.OPENING, "OpenArchive failed"): (Phase.ENDED,),
    (Phase.SETTLING, "SettleAttempts"): (Phase.CHECKING, Phase.ENDED),
    (Phase.SETTLING, "SettleAttempts failed"): (Phase.ENDED,),
    (Phase.CHECKING, "CheckContinuity"): (Phase.RECORDING_LOSS, Phase.ARCHIVING, Phase.ENDED),
    (Phase.CHECKING, "CheckContinuity failed"): (Phase.ENDED,),
    (Phase.RECORDING_LOSS, "RecordLoss"): (Phase.ARCHIVING, Phase.CLEARING, Phase.ENDED),
    (Phase.RECORDING_LOSS, "RecordLoss failed"): (Phase.ENDED,),
    (Phase.ARCHIVING, "FindGroup"): (Phase.ARCHIVING, Phase.CLEARING, Phase.ENDED),
    (Phase.ARCHIVING, "FindGroup failed"): (Phase.ARCHIVING, Phase.ENDED),
    (Phase.ARCHIVING, "Prepare"): (Phase.ARCHIVING, Phase.RECORDING_LOSS, Phase.CLEARING, Phase.ENDED),
    (Phase.ARCHIVING, "Prepare failed"): (Phase.ARCHIVING, Phase.ENDED),
    (Phase.ARCHIVING, "TakeCopies"): (Phase.ARCHIVING, Phase.ENDED),
    (Phase.ARCHIVING, "TakeCopies failed"): (Phase.ARCHIVING, Phase.ENDED),
    (Phase.ARCHIVING, "NotBegun"): (Phase.ARCHIVING, Phase.ENDED),
    (Phase.ARCHIVING, "Upload"): (Phase.ARCHIVING,),
    (Phase.ARCHIVING, "Upload failed"): (Phase.ARCHIVING, Phase.ABANDONING),
    (Phase.ARCHIVING, "ConfirmLeadership"): (Phase.ARCHIVING, Phase.ABANDONING),
    (Phase.ARCHIVING, "ConfirmLeadership failed"): (Phase.ABANDONING,),
    (Phase.ARCHIVING, "AppendCommit"): (
        Phase.ARCHIVING,
        Phase.RECORDING_LOSS,
        Phase.ABANDONING,
        Phase.CLEARING,
        Phase.ENDED,
    ),
    (Phase.ARCHIVING, "AppendCommit failed"): (Phase.ABANDONING,),
    (Phase.ARCHIVING, "CommitLost"): (Phase.ABANDONING,),
    (Phase.ARCHIVING, "CommitRefused"): (Phase.ABANDONING,),
    (Phase.ARCHIVING, "CommitUnknown"): (Phase.ABANDONING,),
    (Phase.ABANDONING, "FindGroup"): (Phase.ABANDONING, Phase.ENDED),
    (Phase.ABANDONING, "FindGroup failed"): (Phase.ABANDONING, Phase.ENDED),
    (Phase.ABANDONING, "Prepare"): (Phase.ABANDONING, Phase.ENDED),
    (Phase.ABANDONING, "Prepare failed"): (Phase.ABANDONING, Phase.ENDED),
    (Phase.ABANDONING, "TakeCopies"): (Phase.ABANDONING, Phase.ENDED),
    (Phase.ABANDONING, "TakeCopies failed"): (Phase.ABANDONING, Phase.ENDED),
    (Phase.ABANDONING, "NotBegun"): (Phase.ABANDONING, Phase.ENDED),
    (Phase.ABANDONING, "Upload"): (Phase.ABANDONING,),
    (Phase.ABANDONING, "Upload failed"): (Phase.ABANDONING,),
    (Phase.ABANDONING, "Abandon"): (Phase.ABANDONING, Phase.ENDED),
    (Phase.CLEARING, "SettleAttempts"): (Phase.ENDED,),
    (Phase.CLEARING, "SettleAttempts failed"): (Phase.ENDED,),
}
"""By phase and `name_of` an event: the phases that the step leads to, in some case each."""


def name_of(event: events.Event) -> str:
    """What has happened, in the words of the page."""
    match event:
        case events.Answered(effect):
            return type(effect).__name__
        case events.StepFailed(effect) if type(event) is events.StepFailed:
            return f"{type(effect).__name__} failed"
        case _:
            return type(event).__name__
