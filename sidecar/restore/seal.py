"""What is noted of a finished directory until the whole command is through: whose wish it is, and its files.

A later run that finds it trusts nothing less: its name would also fit another wish, and a broker may have been at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from sidecar.host.log_dir_lock import LogDirRefused
from sidecar.logformat.names import directory_name
from sidecar.restore.decisions import Decisions, decide
from sidecar.restore.plan import PartitionPlan
from sidecar.restore.request import (
    NO_TOPIC_ID_WANTED,
    LeaderEpochMode,
    ProducerStateMode,
    RestoreRequest,
    shown_range,
)
from sidecar.restore.staging import RECORD
from sidecar.restore.target import Place, Target


class Restored(BaseModel):
    """A directory that a run finished.

    `asked`: as `asked_for`; `identities`: of its segments; `end_offset`: as planned; `files`: sizes in bytes by name.
    """

    model_config = ConfigDict(frozen=True)

    topic_id: str | None
    leader_epochs: LeaderEpochMode
    producer_state: ProducerStateMode
    asked: dict[str, Any]
    identities: tuple[str, ...]
    end_offset: int
    files: dict[str, int]


def asked_for(request: RestoreRequest) -> dict[str, Any]:
    """What of the wish decides the bytes, besides segments and modes."""
    return {
        "offset_range": None if request.offset_range is None else list(request.offset_range),
        "until_timestamp_ms": request.until_timestamp_ms,
        "open_transactions": str(request.open_transactions),
        "deleted_records": str(request.deleted_records),
    }


def seal_of(
    decisions: Decisions, request: RestoreRequest, plan: PartitionPlan, files: Mapping[str, int]
) -> dict[str, Any]:
    """For the note, in JSON's types. `files`: sizes in bytes by name."""
    return Restored(
        topic_id=decisions.topic_id,
        leader_epochs=decisions.leader_epochs,
        producer_state=decisions.producer_state,
        asked=asked_for(request),
        identities=tuple(found.identity for found in plan.segments),
        end_offset=plan.end_offset,
        files=dict(files),
    ).model_dump(mode="json")


def decided_before(
    plan: PartitionPlan, target: Target, seal: Mapping[str, Any], request: RestoreRequest
) -> tuple[PartitionPlan, Decisions]:
    """The plan and the decisions of the run that finished this directory, if it was of the same wish and nothing has changed.

    What has been archived since is not in it: the plan is cut to what it was.

    Raises LogDirRefused if they differ, and as `decide` does.
    """
    directory = target.log_dir / directory_name(plan.topic_partition)
    try:
        earlier = Restored.model_validate(seal)
    except ValidationError as error:
        raise _refused(directory, "left a seal file that cannot be read") from error
    if problem := _changed(directory, earlier) or _unlike(plan, request, earlier):
        raise _refused(directory, problem)
    # The empty log that was asked for its epochs is gone: what it led to stays decided, and is refused where it is dangerous.
    modes = replace(request, leader_epochs=earlier.leader_epochs, producer_state=earlier.producer_state)
    decisions = decide(plan, target, Place(), modes)
    if decisions.topic_id != earlier.topic_id:
        raise _refused(directory, f"was restored with the topic id {earlier.topic_id or NO_TOPIC_ID_WANTED}")
    kept = plan.segments[: len(earlier.identities)]
    lost = tuple(hole for hole in plan.lost if hole.base_offset < earlier.end_offset)
    return replace(plan, segments=kept, lost=lost, lost_to_offset=earlier.end_offset), decisions


def _refused(directory: Path, problem: str) -> LogDirRefused:
    return LogDirRefused(
        f"{directory}: is not empty: an earlier run of restore made it, whole, and it {problem}. Nothing is ever overwritten. "
        f"Nothing is left to do if you want that log; else move this directory out of the log dir, or name the others with "
        f"--partition"
    )


def _changed(directory: Path, earlier: Restored) -> str:
    files = {path.name: path.stat().st_size for path in directory.iterdir() if path.name != RECORD}
    for name in sorted(files.keys() | earlier.files.keys()):
        before, now = earlier.files.get(name), files.get(name)
        if before != now:
            return f"was changed since, by a broker or a person ({name}: {_size(now)}, when restored {_size(before)})"
    return ""


def _size(size_bytes: int | None) -> str:
    return "no such file" if size_bytes is None else f"{size_bytes} bytes"


def _unlike(plan: PartitionPlan, request: RestoreRequest, earlier: Restored) -> str:
    asked = asked_for(request)
    for name, wanted in asked.items():
        if earlier.asked.get(name) != wanted:
            flag = "until-timestamp" if name == "until_timestamp_ms" else name.replace("_", "-")
            return f"was restored with another --{flag} ({_shown(earlier.asked.get(name))}, now {_shown(wanted)})"
    if request.leader_epochs not in {None, earlier.leader_epochs}:
        return f"was restored with --leader-epochs {earlier.leader_epochs}"
    if request.producer_state not in {None, earlier.producer_state}:
        return f"was restored with --producer-state {earlier.producer_state}"
    # What was archived since may follow.
    found = tuple(found.identity for found in plan.segments[: len(earlier.identities)])
    if not found or found != earlier.identities:
        return (
            "was restored from other archived segments: from another archive, or before a compaction or a new segment"
        )
    return ""


def _shown(value: object) -> str:
    match value:
        case [int() as first_offset, int() as end_offset]:
            return shown_range(first_offset, end_offset)
        case None:
            return "none"
    return str(value)
