"""`config show|validate|schema`: the settings themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.archiving import Archive, Bootstrap, CommandConfig, LogDirs
from sidecar.cli.options import NO_ARCHIVE, GlobalOptions
from sidecar.cli.output import print_answer, print_table, remark
from sidecar.clock import SystemClock
from sidecar.errors import BrokerUnavailable

if TYPE_CHECKING:
    from sidecar.config import Settings


def show(
    options: GlobalOptions,
    log_dir: LogDirs = None,
    archive: Archive = None,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    topic: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Show this topic's effective policy and where each value comes from."),
    ] = None,
) -> int:
    """Show every setting, its value and its source. Secrets are redacted."""
    from sidecar.config.changes import fingerprint

    if topic is not None:
        return _show_topic(options, topic, archive, log_dir, bootstrap_server, command_config)
    given = {"broker.log_dirs": log_dir or None, "store.url": archive}
    loaded = options.load({**given, "broker.connection.bootstrap_servers": bootstrap_server or None}, command_config)
    shown = loaded.shown()
    if options.json:
        found = {"fingerprint": fingerprint(loaded), "settings": shown}
        print_answer("settings", found)
    else:
        rows = [(path, _as_yaml(entry["value"]), entry["source"]) for path, entry in shown.items()]
        print_table("Settings", ["setting", "value", "source"], rows, colors=options.colors)
    return 0


def _show_topic(
    options: GlobalOptions,
    topic: str,
    archive: Archive,
    log_dir: LogDirs,
    bootstrap_server: Bootstrap,
    command_config: CommandConfig,
) -> int:
    given = {
        "store.url": archive or NO_ARCHIVE,
        "broker.log_dirs": log_dir or None,
        "broker.connection.bootstrap_servers": bootstrap_server or None,
    }
    settings = options.settings(given, command_config, calm=True)
    from sidecar.runner.effective_policy import effective_policy

    shown, away = effective_policy(settings, topic, SystemClock())
    if options.json:
        print_answer("topic_policy", {"topic": topic, "away": away, "policy": shown})
    else:
        rows = [(name, _as_yaml(entry["value"]), entry["source"]) for name, entry in shown.items()]
        print_table(f"Topic {topic}", ["name", "value", "source"], rows, colors=options.colors)
        if away:
            remark(away)
    return BrokerUnavailable.exit_code if away else 0


def validate(options: GlobalOptions, log_dir: LogDirs = None, archive: Archive = None) -> int:
    """Check the settings without the broker and the store. Exit code 0 if they are valid, 2 if not. Warnings do not
    change it."""
    from sidecar.compactor.topic_counts import BEFORE_UPLOAD_ADVICE, before_upload_risk
    from sidecar.compactor.topic_rule import (
        EXPIRY_ADVICE,
        EXPIRY_ADVICE_UNCHECKED,
        HEADER_UNKNOWN,
        NAME_HEADER,
        expiry_unchecked,
        tombstone_expiry_risk,
        unnamed_header,
    )
    from sidecar.storage.opening import require_fit

    settings = options.load({"broker.log_dirs": log_dir or None, "store.url": archive}).settings
    require_fit(settings.store)
    warnings, unchecked = [], []
    for pattern, found in settings.compaction.policies.items():
        where, times = f"compaction.topics {pattern!r}", list(_segment_ms(settings, pattern))
        expiry = next(filter(None, (tombstone_expiry_risk(found, segment_ms) for segment_ms in times)), "")
        risks = (
            (HEADER_UNKNOWN if unnamed_header(found.strategy, found.header) else "", NAME_HEADER),
            (expiry, EXPIRY_ADVICE),
            (before_upload_risk(found, settings.compaction.max_upload_delay_ms), BEFORE_UPLOAD_ADVICE),
        )
        warnings += [f"{where}: {risk}; {advice}" for risk, advice in risks if risk]
        if not expiry and None in times and (unknown := expiry_unchecked(found, None)):
            unchecked.append(f"{where}: {unknown}; {EXPIRY_ADVICE_UNCHECKED}")
    if options.json:
        found_here = {"valid": True, "warnings": warnings, "not_checked": unchecked}
        print_answer("settings_validation", found_here)
    elif not options.quiet:
        for text in [f"warning: {text}" for text in warnings] + [f"not checked: {text}" for text in unchecked]:
            remark(text)
        remark("the settings are valid")
    return 0


def _segment_ms(settings: Settings, pattern: str) -> Iterator[int | None]:
    """The `segment_ms` in `topics.policies` of topics that a pattern of `compaction.topics` matches; None where none is set.

    Both are patterns: those that are equal are compared, and those of which one matches the other as the name of a topic.
    """
    for entry in settings.topics.policies:
        matches_all = entry.pattern == pattern or re.fullmatch(entry.pattern, pattern) is not None
        if matches_all or re.fullmatch(pattern, entry.pattern):
            yield entry.segment_ms
        if matches_all:
            return
    yield None


def schema(options: GlobalOptions) -> int:
    """Print the JSON Schema of the settings file."""
    import sys

    from sidecar.config import Settings
    from sidecar.config.meanings import DescribedSchema

    described = Settings.model_json_schema(schema_generator=DescribedSchema)
    sys.stdout.write(json.dumps(described, indent=None if options.json else 2) + "\n")
    return 0


def _as_yaml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
