"""What `snapshots heal` found and did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sidecar.errors import PartitionError, VerificationMismatch
from sidecar.pipeline.snapshots.heal_plan import Healing


@dataclass(frozen=True, slots=True)
class HealReport:
    """Every partition looked at, ascending, and what could not be looked at."""

    healings: tuple[Healing, ...]
    problems: tuple[str, ...]
    dry_run: bool

    @property
    def worth_showing(self) -> list[Healing]:
        """Those in which something was missing or wrong."""
        return [
            healing
            for healing in self.healings
            if healing.plan.missing or healing.replaced or healing.misleads or healing.problem
        ]

    @property
    def exit_code(self) -> int:
        """0, 3 if a partition was not healed completely, 4 if a snapshot is left that disagrees with the replay or is none."""
        if any(healing.misleads for healing in self.healings):
            return VerificationMismatch.exit_code
        if self.problems or any(healing.problem for healing in self.healings):
            return PartitionError.exit_code
        return 0

    def as_json(self) -> dict[str, Any]:
        """One object, for `--json`. Partitions in which all is well are only counted."""
        rows = [_row(healing) for healing in self.worth_showing]
        counts = {"partitions": len(self.healings), "created": sum(len(healing.created) for healing in self.healings)}
        counts["missing"] = sum(len(healing.plan.missing) for healing in self.healings)
        counts["replaced"] = sum(len(healing.replaced) for healing in self.healings)
        found: dict[str, Any] = {"kind": "snapshots_heal", "version": 1, "dry_run": self.dry_run, "counts": counts}
        return {**found, "partitions": rows, "problems": list(self.problems), "exit_code": self.exit_code}


def _row(healing: Healing) -> dict[str, Any]:
    log = healing.plan.log
    return {
        "topic": log.topic_partition.topic,
        "partition": log.topic_partition.partition,
        "directory": log.place,
        "missing": list(healing.plan.missing),
        "created": sorted(healing.created),
        "replaced": sorted(healing.replaced),
        "replayed": healing.replayed,
        "verified": healing.verified if healing.replayed else None,
        "mismatches": healing.mismatches if healing.replayed else None,
        "withheld": healing.withheld,
        "wrong_empty": healing.wrong_empty,
        "corrupt": healing.corrupt,
        "exact": healing.exact if healing.replayed else None,
        "note": healing.note,
        "problem": healing.problem,
    }
