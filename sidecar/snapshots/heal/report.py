"""What `snapshots heal` found and did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sidecar.errors import PartitionError, VerificationMismatch
from sidecar.snapshots.heal.plan import Healing
from sidecar.snapshots.replay_mode import Replay


@dataclass(frozen=True, slots=True)
class HealReport:
    """Every partition looked at, ascending, and what could not be looked at. `warnings` change no exit code."""

    healings: tuple[Healing, ...]
    problems: tuple[str, ...]
    dry_run: bool
    replay: Replay = Replay.WINDOW
    warnings: tuple[str, ...] = ()

    @property
    def worth_showing(self) -> list[Healing]:
        """Those in which something was missing or wrong."""
        return [
            healing
            for healing in self.healings
            if healing.plan.missing
            or healing.created
            or healing.replaced
            or healing.misleads
            or healing.problem
            or (self.dry_run and healing.plan.bare)
        ]

    @property
    def exit_code(self) -> int:
        """0, 3 if a partition was not healed completely, 4 if a snapshot is left that disagrees with the replay or is none.

        A dry run leaves to be healed what is missing: 3.
        """
        if any(healing.misleads for healing in self.healings):
            return VerificationMismatch.exit_code
        to_heal = self.dry_run and any(healing.plan.missing for healing in self.healings)
        if to_heal or self.problems or any(healing.problem for healing in self.healings):
            return PartitionError.exit_code
        return 0

    def as_json(self) -> dict[str, Any]:
        """One object, for `--json`. Partitions in which all is well are only counted."""
        rows = [_row(healing) for healing in self.worth_showing]
        counts = {"partitions": len(self.healings), "created": sum(len(healing.created) for healing in self.healings)}
        counts["missing"] = sum(len(healing.plan.missing) for healing in self.healings)
        counts["read_bytes"] = sum(healing.read_bytes for healing in self.healings)
        counts["not_compared"] = sum(len(healing.not_compared) for healing in self.healings)
        counts["replaced"] = sum(len(healing.replaced) for healing in self.healings)
        found: dict[str, Any] = {"kind": "snapshots_heal", "version": 1, "dry_run": self.dry_run, "replay": self.replay}
        found["counts"] = counts
        said = {"problems": list(self.problems), "warnings": list(self.warnings)}
        return {**found, "partitions": rows, **said, "exit_code": self.exit_code}


def _row(healing: Healing) -> dict[str, Any]:
    log = healing.plan.log
    return {
        "topic": log.topic_partition.topic,
        "partition": log.topic_partition.partition,
        "directory": log.place,
        "missing": list(healing.plan.missing),
        "log_end": healing.plan.log_end,
        "created": sorted(healing.created),
        "replaced": sorted(healing.replaced),
        "replayed": healing.replayed,
        "replayed_from": [{"offset": start.offset, "start": start.kind} for start in healing.starts],
        "read_bytes": healing.read_bytes,
        "not_compared": healing.not_compared,
        "verified": healing.verified if healing.replayed else None,
        "mismatches": healing.mismatches if healing.replayed else None,
        "withheld": healing.withheld,
        "wrong_empty": healing.wrong_empty,
        "corrupt": healing.corrupt,
        "exact": healing.exact if healing.replayed else None,
        "note": healing.note,
        "problem": healing.problem,
    }
