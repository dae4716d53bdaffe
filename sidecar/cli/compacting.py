"""`compact`: a partition's directory with one record per key."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sidecar.cli.archiving import Archive, Excluded, Topics
from sidecar.cli.engines import EngineName, Master, spark_flags
from sidecar.cli.options import NO_ARCHIVE, GlobalOptions
from sidecar.errors import SettingsError

if TYPE_CHECKING:
    from sidecar.compaction.rules import Strategy


class StrategyName(StrEnum):
    """The values of `Strategy`, whose module loads what --help does not need."""

    OFFSET = "offset"
    TIMESTAMP = "timestamp"
    HEADER = "header"


def compact(
    options: GlobalOptions,
    directory: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="A partition directory, or a copy of one.", show_default=False)
    ] = None,
    archive: Archive = None,
    topic: Topics = None,
    exclude: Excluded = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="The directory to write: absent or empty, and in no broker's log directory."),
    ] = None,
    strategy: Annotated[StrategyName, typer.Option(help="Which of the records of a key stays.")] = StrategyName.OFFSET,
    header: Annotated[
        str, typer.Option(metavar="NAME", help="The header that holds the version, 8 bytes; for --strategy header.")
    ] = "",
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse records whose version is malformed, instead of ranking them lowest."),
    ] = False,
    now_ms: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The time that decides on tombstones. Default: now.")
    ] = None,
    delete_retention_ms: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="How long tombstones and markers stay, as delete.retention.ms. Default: a day, or what holds for a topic.",
        ),
    ] = None,
    segment_bytes: Annotated[
        int, typer.Option(metavar="N", min=1, help="Small results are joined up to this size, as segment.bytes.")
    ] = 1024**3,
    include_active: Annotated[
        bool, typer.Option("--include-active", help="Compact the last segment too. Default: it is copied as it is.")
    ] = False,
    exact_keys: Annotated[
        bool, typer.Option("--exact-keys", help="Compare keys byte by byte, not by their keyed 128-bit hash.")
    ] = False,
    engine: Annotated[
        EngineName, typer.Option(help="Where the work runs; auto: Spark, but for small partitions this process.")
    ] = EngineName.AUTO,
    master: Master = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would come of it, and write nothing.")] = False,
    undo: Annotated[
        bool,
        typer.Option(
            "--undo",
            help="With --archive: undo the newest compaction of each partition, as long as gc has not deleted what it replaced.",
        ),
    ] = False,
    partition: Annotated[
        list[int] | None,
        typer.Option(metavar="N", min=0, help="With --undo: only this partition. May be given several times."),
    ] = None,
    what_if: Annotated[
        bool,
        typer.Option(
            "--what-if",
            help="Say what each strategy would save, and which keys keep another record than by offset; write nothing.",
        ),
    ] = False,
    keys_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --what-if: where all such keys go, a JSON object on each line."),
    ] = None,
) -> int:
    """Compact a partition directory into a new one that a broker can load, or topics of an archive where they lie.

    The last segment of a directory counts as active, and is copied. Nothing at or above the first open transaction is touched.
    An archive's partitions are each replaced by one commit, or stay as they are: exit code 3.
    """
    if (directory is None) == (archive is None):
        raise SettingsError("name a partition directory, or --archive URL")
    if undo or partition:
        if not undo:
            raise SettingsError("--partition goes with --undo only")
        is_alone = not (what_if or include_active or out or keys_file)
        return _undo(options, archive, topic, exclude, partition, dry_run=dry_run, is_alone=is_alone)
    if archive is None:
        if topic or exclude or master:
            raise SettingsError("--topic, --exclude and --master are for --archive URL")
        if (out is not None) + dry_run + what_if != 1:
            raise SettingsError(
                "--out OUT says where to write, --dry-run and --what-if write nothing: give one of the three"
            )
    elif out is not None or include_active:
        raise SettingsError("--out and --include-active are for a directory: an archive is compacted where it lies")
    elif dry_run and what_if:
        raise SettingsError("of --dry-run and --what-if give one")
    elif not (topic or dry_run or what_if):
        raise SettingsError(
            "--topic REGEX says which topics to compact: records without a key would be dropped from all others too ('.*' for all)"
        )
    if keys_file is not None and not what_if:
        raise SettingsError("--keys-file is for --what-if")
    flags = {"topics.include": topic or None, "topics.exclude": exclude or None, **spark_flags(master, engine)}
    settings = options.settings({"store.url": archive or NO_ARCHIVE, **flags}, calm=True)
    from sidecar.compaction.rules import DAY_MS, CompactionRules

    rules = CompactionRules(
        _now_ms(now_ms),
        strategy=_strategy(strategy, header, what_if=what_if),
        header=header,
        strict_headers=strict,
        delete_retention_ms=DAY_MS if delete_retention_ms is None else delete_retention_ms,
        segment_bytes=segment_bytes,
        exact_keys=exact_keys,
    )
    if directory is None:
        from sidecar.cli.archive_compaction import compact_archive

        writing = {"dry_run": dry_run, "what_if": what_if}
        return compact_archive(options, settings, rules, engine, delete_retention_ms, **writing, keys_file=keys_file)
    from sidecar.cli.directory_compaction import compact_partition, forecast_partition

    if what_if:
        return forecast_partition(
            options, settings, rules, engine, directory, include_active=include_active, keys_file=keys_file
        )
    return compact_partition(options, settings, rules, engine, directory, out=out, include_active=include_active)


def _undo(
    options: GlobalOptions,
    archive: str | None,
    topic: list[str] | None,
    exclude: list[str] | None,
    partitions: list[int] | None,
    *,
    dry_run: bool,
    is_alone: bool,
) -> int:
    if not is_alone or archive is None or not topic:
        raise SettingsError(
            "--undo needs --archive URL and --topic REGEX, and takes --exclude, --partition and --dry-run only"
        )
    from sidecar.cli.archive_undo import undo_archive

    settings = options.settings({"store.url": archive, "topics.include": topic, "topics.exclude": exclude}, calm=True)
    return undo_archive(options, settings, frozenset(partitions or ()), dry_run=dry_run)


def _strategy(name: StrategyName, header: str, *, what_if: bool) -> Strategy:
    from sidecar.compaction.rules import Strategy

    strategy = Strategy(name)
    if strategy is Strategy.HEADER and not header.strip():
        from sidecar.cli.output import remark

        remark("no --header was named: records are compared by offset")
    if strategy is not Strategy.HEADER and header and not what_if:
        raise SettingsError(f"--header {header} is for --strategy header, not {strategy}")
    return strategy


def _now_ms(given: int | None) -> int:
    from sidecar.clock import SystemClock

    return SystemClock().now_ms() if given is None else given
