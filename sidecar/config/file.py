"""The settings file: YAML, one mapping of sections."""

from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import yaml

from sidecar.errors import SettingsError

NODES_MAX = 100_000
"""Of a file with its aliases written out. Few short lines can stand for more than any memory holds."""


class _StrictLoader(yaml.SafeLoader):
    """Refuses what YAML would accept: a key that appears twice in one mapping, and aliases without an end."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None:
            _require_finite(node, {})
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"key {key.value!r} appears twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _require_finite(node: yaml.Node, sizes: dict[int, int]) -> int:
    """How many nodes this one expands to. `sizes`: those that are known by identity, 0 while they are being counted."""
    size = sizes.get(id(node))
    if size == 0:
        raise yaml.MarkedYAMLError(
            problem="an alias refers to the value that contains it", problem_mark=node.start_mark
        )
    if size is None:
        sizes[id(node)] = 0
        pairs = node.value if isinstance(node, yaml.MappingNode) else ()
        inner = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in pairs for part in pair]
        size = sizes[id(node)] = 1 + sum(_require_finite(part, sizes) for part in inner)
    if size > NODES_MAX:
        problem = f"with its aliases written out this has more than {NODES_MAX} values"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    return size


def _refuse_tag(_loader: yaml.SafeLoader, node: yaml.Node) -> NoReturn:
    tag = node.tag.replace("tag:yaml.org,2002:", "!!")
    raise yaml.MarkedYAMLError(
        problem=f"the tag {tag} is not supported: write the plain value, or set it in the environment",
        problem_mark=node.start_mark,
    )


_PLAIN = ("null", "bool", "int", "float", "str", "seq", "map")
_StrictLoader.yaml_constructors = {
    f"tag:yaml.org,2002:{name}": yaml.SafeLoader.yaml_constructors[f"tag:yaml.org,2002:{name}"] for name in _PLAIN
}
# A date without quotes is text like any other: no setting is a date.
_StrictLoader.yaml_constructors["tag:yaml.org,2002:timestamp"] = yaml.SafeLoader.yaml_constructors[
    "tag:yaml.org,2002:str"
]
_StrictLoader.add_constructor(None, _refuse_tag)


def read_settings_file(path: Path) -> Mapping[str, Any]:
    """The file's content. Raises SettingsError with file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"cannot read settings file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}, at byte {error.start}: not UTF-8 text") from error
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
