"""`compact`: a partition's directory with one record per key."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sidecar.cli.archiving import Archive, Excluded, Topics
from sidecar.cli.engines import Engine, Master, spark_flags
from sidecar.cli.options import NO_ARCHIVE, GlobalOptions, with_chosen
from sidecar.cli.output import remark
from sidecar.clock import SystemClock
from sidecar.compaction_strategy import OnUnkeyed, Strategy, strategy_of
from sidecar.errors import SegmentChanged, SettingsError

_AS_DECLARED: Final = "Default: the topic's setting"
_IN_ARCHIVE: Final = (
    "partitions without a new commit are unchanged. `tiered-sidecar status` shows in `compacted` which are compacted; "
    "run the same command again for the others"
)


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
    strategy: Annotated[
        Any,
        typer.Option(
            parser=strategy_of,
            metavar="|".join(Strategy),
            help=f"Which record of a key is retained. {_AS_DECLARED}, else offset.",
        ),
    ] = None,
    header: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help=f"The header that holds the version, 8 bytes; for --strategy header. {_AS_DECLARED}."
        ),
    ] = None,
    strict: Annotated[
        bool | None,
        typer.Option(
            "--strict/--no-strict",
            help=f"Refuse records whose version is malformed, instead of ranking them lowest. {_AS_DECLARED}.",
            show_default=False,
        ),
    ] = None,
    on_unkeyed: Annotated[
        OnUnkeyed | None,
        typer.Option(help=f"Records without a key: drop them, or refuse to compact the partition. {_AS_DECLARED}."),
    ] = None,
    now_ms: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The time used to expire tombstones. Default: now.")
    ] = None,
    delete_retention_ms: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="How long tombstones and markers are retained (delete.retention.ms). Default: the topic's, else one day.",
        ),
    ] = None,
    segment_bytes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=14,
            max=2**31 - 1,
            help=f"Join small results up to this size (segment.bytes). {_AS_DECLARED}, else 1 GiB.",
        ),
    ] = None,
    include_active: Annotated[
        bool, typer.Option("--include-active", help="Compact the last segment too. Default: it is copied as it is.")
    ] = False,
    exact_keys: Annotated[
        bool | None,
        typer.Option(
            "--exact-keys/--no-exact-keys",
            help=f"Compare keys byte by byte, not by their keyed 128-bit hash. {_AS_DECLARED}.",
            show_default=False,
        ),
    ] = None,
    override: Annotated[
        bool,
        typer.Option(
            "--override",
            help="Use the options even if they contradict the topic's entry in compaction.topics, or change the "
            "strategy of an archive's earlier compactions. The log records this.",
        ),
    ] = False,
    engine: Engine = None,
    master: Master = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report the result; write nothing.")] = False,
    undo: Annotated[
        bool,
        typer.Option(
            "--undo",
            help=(
                "In an archive: undo the newest compaction of each partition, unless gc has deleted the replaced "
                "segments."
            ),
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
            help="Report what each strategy would save, and the keys whose retained record differs from strategy "
            "offset; write nothing.",
        ),
    ] = False,
    keys_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --what-if: write all such keys to this file, one JSON object per line."
        ),
    ] = None,
) -> int:
    """Compact a partition directory into a new one that a broker can load, or topics of an archive in place. The last
    segment of a directory counts as active, and is copied. Records from the first open transaction on are not
    compacted. In an archive, one commit replaces the segments of each partition. Exit code 3 if a partition stays as it
    is because of an error, 6 if that is an error of the store.
    """
    if directory is not None and archive is not None:
        raise SettingsError("give only one of a partition directory and --archive URL")
    from sidecar.compactor.command_rules import GivenRules

    given = GivenRules(strategy, header, strict, exact_keys, segment_bytes, delete_retention_ms, on_unkeyed)
    if undo or partition:
        if not undo:
            raise SettingsError("--partition goes with --undo only")
        others = (now_ms, engine, master, out, keys_file)
        is_alone = given == GivenRules() and not (what_if or include_active or override) and others == (None,) * 5
        if not is_alone or directory is not None or not topic:
            raise SettingsError(
                "--undo needs --topic REGEX of an archive, and allows only --archive, --exclude, --partition and --dry-run"
            )
    if directory is not None:
        if topic or exclude:
            raise SettingsError("--topic and --exclude are for an archive")
        if (out is not None) + dry_run + what_if != 1:
            raise SettingsError("give exactly one of --out OUT, --dry-run and --what-if")
    elif out is not None or include_active:
        raise SettingsError("--out and --include-active need a directory; an archive is compacted in place")
    elif dry_run and what_if:
        raise SettingsError("give only one of --dry-run and --what-if")
    elif not (topic or dry_run or what_if):
        raise SettingsError(
            "name a partition directory, or --topic REGEX of an archive ('.*' for all topics): compaction removes records "
            "without a key"
        )
    if keys_file is not None and not what_if:
        raise SettingsError("--keys-file is for --what-if")
    flags = {"store.url": archive if directory is None else NO_ARCHIVE, **spark_flags(master, engine)}
    settings = with_chosen(options.settings(flags, calm=True), topic, exclude)
    from sidecar.cli.compact.rules import Wanted

    wanted = Wanted(given, SystemClock().now_ms() if now_ms is None else now_ms, override, what_if)
    try:
        if directory is None:
            from sidecar.cli.compact.archive_compaction import compact_archive, undo_archive

            if undo:
                return undo_archive(options, settings, frozenset(partition or ()), dry_run=dry_run)
            return compact_archive(options, settings, wanted, dry_run=dry_run, keys_file=keys_file)
        from sidecar.cli.compact.directory_compaction import compact_partition, forecast_partition

        if what_if:
            return forecast_partition(
                options, settings, wanted, directory, include_active=include_active, keys_file=keys_file
            )
        return compact_partition(options, settings, wanted, directory, out=out, include_active=include_active)
    except SegmentChanged as error:
        error.add_note("If a broker uses this directory, stop it first, or compact a copy")
        raise
    except SystemExit:
        written = _IN_ARCHIVE if directory is None else f"{out} is either complete or as it was before"
        remark(f"interrupted: {'nothing was changed' if dry_run or what_if else written}")
        raise
