"""The settings file: YAML, one mapping of sections."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import yaml

from sidecar.errors import SettingsError


class _StrictLoader(yaml.SafeLoader):
    """Refuses what YAML would pass over: a key that stands twice in one mapping."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"key {key.value!r} stands here twice", problem_mark=key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _refuse_tag(_loader: yaml.SafeLoader, node: yaml.Node) -> NoReturn:
    tag = node.tag.replace("tag:yaml.org,2002:", "!!")
    raise yaml.MarkedYAMLError(
        problem=f"the tag {tag} is not supported: write the plain value, or set it in the environment",
        problem_mark=node.start_mark,
    )


def _as_text(_loader: yaml.SafeLoader, node: yaml.ScalarNode) -> str:
    return str(node.value)


_PLAIN = ("null", "bool", "int", "float", "str", "seq", "map")
_StrictLoader.yaml_constructors = {
    f"tag:yaml.org,2002:{name}": yaml.SafeLoader.yaml_constructors[f"tag:yaml.org,2002:{name}"] for name in _PLAIN
}
# A date without quotes is text like any other: no setting is a date.
_StrictLoader.add_constructor("tag:yaml.org,2002:timestamp", _as_text)
_StrictLoader.add_constructor(None, _refuse_tag)


def read_settings_file(path: Path) -> Mapping[str, Any]:
    """The file's content. Raises SettingsError with file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"cannot read settings file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}, at byte {error.start}: no UTF-8 text") from error
    try:
        content = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SettingsError(f"{path}{place}: {error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise SettingsError(f"{path}: no YAML: {str(error).splitlines()[0]}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"{path}: expected a mapping of sections, found a {type(content).__name__}")
    return content
