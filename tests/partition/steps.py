"""Where each step of a copy task leads, and what its phases mean: for the page about the architecture, and to be checked."""

from __future__ import annotations

from typing import Final

from sidecar.partition import effects, events
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
    (Phase.OPENING, events.ArchiveOpened): (Phase.SETTLING, Phase.ENDED),
    (Phase.OPENING, effects.OpenArchive): (Phase.ENDED,),
    (Phase.SETTLING, events.AttemptsSettled): (Phase.CHECKING, Phase.ENDED),
    (Phase.SETTLING, effects.SettleAttempts): (Phase.ENDED,),
    (Phase.CHECKING, events.ContinuityShown): (Phase.RECORDING_LOSS, Phase.ARCHIVING, Phase.ENDED),
    (Phase.CHECKING, effects.CheckContinuity): (Phase.ENDED,),
    (Phase.RECORDING_LOSS, events.LossRecorded): (Phase.ARCHIVING, Phase.CLEARING, Phase.ENDED),
    (Phase.RECORDING_LOSS, effects.RecordLoss): (Phase.ENDED,),
    (Phase.ARCHIVING, events.GroupFound): (Phase.ARCHIVING, Phase.CLEARING, Phase.ENDED),
    (Phase.ARCHIVING, events.SegmentPrepared): (Phase.ARCHIVING, Phase.RECORDING_LOSS, Phase.CLEARING, Phase.ENDED),
    (Phase.ARCHIVING, effects.Prepare): (Phase.ARCHIVING, Phase.ENDED),
    (Phase.ARCHIVING, events.CopiesTaken): (Phase.ARCHIVING, Phase.ENDED),
    (Phase.ARCHIVING, effects.TakeCopies): (Phase.ARCHIVING, Phase.ENDED),
    (Phase.ARCHIVING, effects.FindGroup): (Phase.ARCHIVING, Phase.ENDED),
    (Phase.ARCHIVING, events.NotBegun): (Phase.ARCHIVING, Phase.ENDED),
    (Phase.ARCHIVING, effects.AppendCommit): (Phase.ABANDONING,),
    (Phase.ARCHIVING, events.UploadFinished): (Phase.ARCHIVING,),
    (Phase.ARCHIVING, events.UploadFailed): (Phase.ARCHIVING, Phase.ABANDONING),
    (Phase.ARCHIVING, events.LeadershipConfirmed): (Phase.ARCHIVING, Phase.ABANDONING),
    (Phase.ARCHIVING, effects.ConfirmLeadership): (Phase.ABANDONING,),
    (Phase.ARCHIVING, events.CommitWon): (
        Phase.ARCHIVING,
        Phase.RECORDING_LOSS,
        Phase.ABANDONING,
        Phase.CLEARING,
        Phase.ENDED,
    ),
    (Phase.ARCHIVING, events.CommitLost): (Phase.ABANDONING,),
    (Phase.ARCHIVING, events.CommitRefused): (Phase.ABANDONING,),
    (Phase.ARCHIVING, events.CommitUnknown): (Phase.ABANDONING,),
    (Phase.ABANDONING, events.Abandoned): (Phase.ABANDONING, Phase.ENDED),
    (Phase.ABANDONING, events.SegmentPrepared): (Phase.ABANDONING, Phase.ENDED),
    (Phase.ABANDONING, effects.Prepare): (Phase.ABANDONING, Phase.ENDED),
    (Phase.ABANDONING, events.GroupFound): (Phase.ABANDONING, Phase.ENDED),
    (Phase.ABANDONING, events.CopiesTaken): (Phase.ABANDONING, Phase.ENDED),
    (Phase.ABANDONING, effects.TakeCopies): (Phase.ABANDONING, Phase.ENDED),
    (Phase.ABANDONING, effects.FindGroup): (Phase.ABANDONING, Phase.ENDED),
    (Phase.ABANDONING, events.NotBegun): (Phase.ABANDONING, Phase.ENDED),
    (Phase.ABANDONING, events.UploadFinished): (Phase.ABANDONING,),
    (Phase.ABANDONING, events.UploadFailed): (Phase.ABANDONING,),
    (Phase.CLEARING, events.AttemptsSettled): (Phase.ENDED,),
    (Phase.CLEARING, effects.SettleAttempts): (Phase.ENDED,),
}
"""By the keys of `STEPS`: the phases that the step leads to, in some case each."""
