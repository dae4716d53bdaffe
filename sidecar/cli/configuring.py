"""`config show|validate|schema`: the settings themselves."""

from __future__ import annotations

import json
from typing import Any

from sidecar.cli.archiving import Archive, LogDirs
from sidecar.cli.options import GlobalOptions

JSON_VERSION = 1


def show(options: GlobalOptions, log_dir: LogDirs = None, archive: Archive = None) -> int:
    """Show every setting, its value and where that comes from. Secrets are redacted."""
    from sidecar.cli.output import print_json, print_table

    shown = options.load({"broker.log_dirs": log_dir or None, "store.url": archive}).shown()
    if options.json:
        print_json({"kind": "settings", "version": JSON_VERSION, "settings": shown})
    else:
        rows = [(path, _as_yaml(entry["value"]), entry["source"]) for path, entry in shown.items()]
        print_table("Settings", ["setting", "value", "source"], rows, colors=options.colors)
    return 0


def validate(options: GlobalOptions, log_dir: LogDirs = None, archive: Archive = None) -> int:
    """Check the settings, and nothing else: exit code 0 if they are right, 2 if not."""
    from sidecar.cli.output import print_json, remark

    options.load({"broker.log_dirs": log_dir or None, "store.url": archive})
    if options.json:
        print_json({"kind": "settings_validation", "version": JSON_VERSION, "valid": True})
    elif not options.quiet:
        remark("the settings are valid")
    return 0


def schema(options: GlobalOptions) -> int:
    """Print the JSON Schema of the settings file."""
    import sys

    from sidecar.config import Settings

    sys.stdout.write(json.dumps(Settings.model_json_schema(), indent=None if options.json else 2) + "\n")
    return 0


def _as_yaml(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
