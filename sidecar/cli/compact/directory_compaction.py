"""`compact DIR`: a partition's directory compacted into a new one, or what would come of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidecar.broker.topic_configs import resolve_policy
from sidecar.cli.compact.rules import Wanted, tell_rules
from sidecar.cli.compact.tables import show_compaction, show_outlooks
from sidecar.cli.engines import Work, WorkKind, stage_engine
from sidecar.cli.options import GlobalOptions
from sidecar.cli.output import print_answer
from sidecar.compaction.rules import CompactionRules
from sidecar.compaction_strategy import Strategy
from sidecar.discovery.partition_directory import named_partition
from sidecar.randomness import SystemRandomness
from sidecar.rewriting.directory import Compaction, compact_directory, forecast
from sidecar.rewriting.job import HASH_KEY_BYTES
from sidecar.rewriting.what_if import list_of_keys, write_others
from sidecar.snapshots.jobs import Forgetting

if TYPE_CHECKING:
    from sidecar.compactor.command_rules import CommandRules
    from sidecar.config import Settings
    from sidecar.model import PartitionFiles


def compact_partition(
    options: GlobalOptions,
    settings: Settings,
    wanted: Wanted,
    directory: Path,
    *,
    out: Path | None,
    include_active: bool,
) -> int:
    """Write the compacted directory to `out`, or none where that is None; say what came of it."""
    files = named_partition(directory)
    found, rules = _rules(options, settings, wanted, files)
    with stage_engine(settings, _work_on(files)) as runner:
        compaction = compact_directory(
            files,
            out,
            rules,
            runner,
            _forgetting(settings, rules),
            hash_key=SystemRandomness().random_bytes(HASH_KEY_BYTES),
            include_active=include_active,
        )
    if options.json:
        print_answer("compaction", {**_as_json(compaction, rules), "entry": found.entry})
    else:
        show_compaction(compaction, rules, colors=options.colors)
    return 0


def forecast_partition(
    options: GlobalOptions,
    settings: Settings,
    wanted: Wanted,
    directory: Path,
    *,
    include_active: bool,
    keys_file: Path | None,
) -> int:
    """Say what each strategy would leave. `keys_file`: where the keys go that keep another record than by offset."""
    files = named_partition(directory)
    _, rules = _rules(options, settings, wanted, files)
    strategies = [strategy for strategy in Strategy if strategy is not Strategy.HEADER or rules.header_name]
    with list_of_keys(keys_file) as keys, stage_engine(settings, _work_on(files)) as runner:
        outlooks = forecast(
            files,
            strategies,
            rules,
            runner,
            _forgetting(settings, rules),
            hash_key=SystemRandomness().random_bytes(HASH_KEY_BYTES),
            include_active=include_active,
        )
        place = {"topic": files.topic_partition.topic, "partition": files.topic_partition.partition}
        write_others(keys, place, outlooks)
        if options.json:
            for outlook in outlooks:
                print_answer("compaction_what_if", {**place, **outlook.to_json()})
        else:
            show_outlooks(str(files.topic_partition), outlooks, colors=options.colors)
    return 0


def _rules(
    options: GlobalOptions, settings: Settings, wanted: Wanted, files: PartitionFiles
) -> tuple[CommandRules, CompactionRules]:
    """What holds for the topic that the directory is named after. No broker is asked: a directory may lie far from its own."""
    topic = files.topic_partition.topic
    found = wanted.of_topic(settings, topic, resolve_policy(topic, {}, {}, settings.topics.policies))
    wanted.settle(found.objections)
    if not (options.quiet or wanted.what_if):
        tell_rules([found])
    return found, wanted.rules_of(found)


def _forgetting(settings: Settings, rules: CompactionRules) -> Forgetting:
    return Forgetting(rules.now_ms, settings.broker.producer_id_expiration_ms)


def _work_on(files: PartitionFiles) -> Work:
    return Work(WorkKind.COMPACTION, sum(segment.size_bytes for segment in files.segments), on_this_machine=True)


def _as_json(compaction: Compaction, rules: CompactionRules) -> dict[str, Any]:
    """A compaction as plain values, for programs. Names are stable. `out` is null if nothing was written."""
    files = compaction.survey.files
    return {
        "topic": files.topic_partition.topic,
        "partition": files.topic_partition.partition,
        "directory": str(files.directory),
        "out": None if compaction.out is None else str(compaction.out),
        "strategy": str(rules.effective_strategy),
        "header": rules.in_use.header or None,
        "now_ms": rules.now_ms,
        "last_stable_offset": compaction.survey.last_stable_offset,
        "log_end_offset": compaction.survey.log_end_offset,
        **compaction.figures_as_json(),
        "segments": [
            {
                **output.to_json(),
                "records": output.counts.kept_records,
                "batches_kept": output.counts.verbatim,
                "batches_rebuilt": output.counts.rebuilt,
                "batches_emptied": output.counts.emptied,
                "batches_dropped": output.counts.dropped,
            }
            for output in compaction.outputs
        ],
        "left_alone": [file.base_offset for file in compaction.left_alone],
        "remarks": list(compaction.survey.remarks),
    }
