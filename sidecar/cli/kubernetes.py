"""`k8s render` and `k8s settings`: the text that adds the sidecar to the brokers of a chart or operator."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from sidecar import __version__
from sidecar.cli.options import GlobalOptions
from sidecar.cli.output import print_answer
from sidecar.errors import SettingsError

if TYPE_CHECKING:
    from sidecar.config import LoadedSettings, Settings

RECIPES_FILE: Final = Path(__file__).parent / "recipes.json"
"""By host and variant: rendered from the Helm chart, which has the one definition of the container. A test compares."""
_NAME_CHARACTERS_MAX: Final = 50


class Host(StrEnum):
    """What runs the brokers."""

    BITNAMI = "bitnami"
    KOPERATOR = "koperator"
    CFK = "cfk"
    PLAIN = "plain"
    STRIMZI = "strimzi"


def render(
    options: GlobalOptions,
    host: Annotated[
        Host,
        typer.Option(
            "--for", metavar="HOST", help="bitnami: chart; koperator, cfk, strimzi: operators; plain: any StatefulSet."
        ),
    ],
    image: Annotated[
        str, typer.Option(metavar="IMAGE", help="Image of the sidecar, preferably with its digest.")
    ] = f"tiered-sidecar:{__version__}",
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The ConfigMap NAME-settings has the settings. The chart or `k8s settings` creates it.",
        ),
    ] = "tiered-sidecar",
    secret: Annotated[
        str | None,
        typer.Option(
            metavar="SECRET", help="Secret with access-key-id and secret-access-key. Default: no static keys."
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            metavar="SECRET",
            help="Secret with the token of the status page (key: token). Default: no authentication.",
        ),
    ] = None,
    heal: Annotated[
        bool, typer.Option("--heal", help="Add the init container that creates missing producer snapshots.")
    ] = False,
    namespace: Annotated[
        str | None, typer.Option(metavar="NAMESPACE", help="Namespace of the brokers. Only --for strimzi needs it.")
    ] = None,
) -> int:
    """Print values, a patch or a resource that runs the sidecar next to a host's brokers. The Helm chart's notes have
    the same text. Volumes, directories and user are the host's defaults.
    """
    require_name("--name", name)
    if host is Host.STRIMZI and namespace is None:
        raise SettingsError(
            "--for strimzi needs --namespace: its policy selects pods of the whole cluster by namespace"
        )
    names = (("--image", image), ("--secret", secret), ("--token", token), ("--namespace", namespace))
    for option, value in names:
        if value is not None and (not value or any(character.isspace() for character in value)):
            raise SettingsError(f"{option} {value!r}: expected a name without spaces")
    text = recipe(host, image=image, name=name, secret=secret, token=token, heals=heal, namespace=namespace)
    if options.json:
        print_answer("kubernetes_recipe", {"for": host.value, "text": text})
    else:
        typer.echo(text, nl=False)
    return 0


def require_name(option: str, name: str) -> None:
    """Raises SettingsError unless objects of Kubernetes can be named so, as the chart names them."""
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        raise SettingsError(
            f"{option} {name!r}: expected lower-case letters, digits and hyphens, beginning with a letter and "
            "not ending with a hyphen"
        )
    if len(name) > _NAME_CHARACTERS_MAX:
        raise SettingsError(f"{option} {name}: expected at most {_NAME_CHARACTERS_MAX} characters, the chart's limit")


def recipe(
    host: Host,
    *,
    image: str,
    name: str,
    secret: str | None,
    token: str | None,
    heals: bool,
    namespace: str | None = None,
) -> str:
    """The text for a host."""
    texts = json.loads(RECIPES_FILE.read_text(encoding="utf-8"))
    text = str(texts[host][variant(heals=heals, has_secret=secret is not None, has_token=token is not None)])
    words = {"NAME": name, "IMAGE": image, "SECRET": secret, "TOKEN": token, "NAMESPACE": namespace}
    for mark, word in words.items():
        text = text.replace(f"@{mark}@", word or "")
    return text


def variant(*, heals: bool, has_secret: bool, has_token: bool) -> str:
    """The name of one of a host's texts."""
    parts = (("heal", heals), ("secret", has_secret), ("token", has_token))
    return "+".join(part for part, is_there in parts if is_there) or "sidecar"


CONTAINER_SETTINGS_FILE: Final = Path(__file__).parent / "container_settings.json"
"""What a container needs, from the Helm chart. A test compares."""
MIB: Final = 1024 * 1024
RECIPE_MEMORY_BYTES: Final = 1024 * MIB
"""Memory limit of the container in the recipes. A test compares."""
RECIPE_WORK_BYTES: Final = 10240 * MIB
"""Size of the volume for work files in the recipes. A test compares."""
RECIPE_WORK_REQUESTED_BYTES: Final = 1024 * MIB
RECIPE_EPHEMERAL_BYTES: Final = RECIPE_WORK_REQUESTED_BYTES + 1536 * MIB
"""Request of ephemeral storage in the recipes: work files, /tmp and logs. A test compares."""
RECIPE_PORT: Final = 9308
"""Port of the container in the recipes. A test compares."""
_ALL_ADDRESSES: Final = ("0.0.0.0", "::")  # noqa: S104 - in a pod


def settings(
    options: GlobalOptions,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="The ConfigMap is NAME-settings, as `k8s render` expects it.")
    ] = "tiered-sidecar",
) -> int:
    """Print the settings file as the ConfigMap that `k8s render` expects. --config and --set override the defaults for
    a container (writable directories, a reachable port). Settings that cannot work in a pod are refused, and so are
    secrets, which do not belong in a ConfigMap. Environment variables are not read.
    """
    require_name("--name", name)
    text = config_map(options, name)
    if options.json:
        print_answer("kubernetes_settings", {"text": text})
    else:
        typer.echo(text, nl=False)
    return 0


def config_map(options: GlobalOptions, name: str) -> str:
    """The text of the ConfigMap. Raises SettingsError."""
    import yaml

    from sidecar.config import load_settings, read_assignments
    from sidecar.config.file import read_settings_file

    assigned = read_assignments(options.set_)
    loaded = load_settings(flags=assigned, config_file=options.config_file)
    _require_fit_for_a_pod(loaded)
    tree = json.loads(CONTAINER_SETTINGS_FILE.read_text(encoding="utf-8"))
    if options.config_file is not None:
        _lay_over(tree, read_settings_file(options.config_file))
    for path, value in assigned.items():
        given = value
        for element in reversed(path.split(".")):
            given = {element: given}
        _lay_over(tree, given)
    content = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, default_flow_style=False)
    head = f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}-settings\ndata:\n  settings.yaml: |\n"
    return _size_remarks(loaded.settings) + head + textwrap.indent(content, "    ")


def _lay_over(tree: dict[str, Any], given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        below = tree.get(name)
        if isinstance(below, dict) and isinstance(value, Mapping):
            _lay_over(below, value)
        elif not (isinstance(below, dict) and value is None):  # a heading under which everything is commented out
            tree[name] = value


def _require_fit_for_a_pod(loaded: LoadedSettings) -> None:
    from sidecar.config.environment import variable_of
    from sidecar.config.paths import all_settings, value_at

    for path, source in loaded.sources.items():
        setting = all_settings()[path]
        entries = setting.secret_entries(value_at(loaded.settings, path))
        if setting.is_secret or entries:
            named = "".join(f" {entry.partition('=')[0]}" for entry in entries)
            raise SettingsError(
                f"{path}{named} ({source}): a ConfigMap must not contain a secret. Create a Secret. For keys of the "
                f"store give it to k8s render --secret; for anything else set the variable {variable_of(path)} from "
                "it"
            )
    broker, http, store = loaded.settings.broker, loaded.settings.http, loaded.settings.store
    if store.directory is not None and (store.url.startswith("~") or not store.directory.is_absolute()):
        raise SettingsError(
            f"store.url {store.url} ({loaded.sources['store.url']}): a relative directory cannot be "
            "written in a pod. Write s3://bucket/prefix, or the directory of a volume that you add to the recipe"
        )
    if "broker.log_dirs" in loaded.sources:
        raise SettingsError(
            f"broker.log_dirs ({loaded.sources['broker.log_dirs']}): the recipe sets the directories in an "
            "environment variable, which overrides this. Leave it out here, and change the variable if the broker "
            "has other directories"
        )
    if not (broker.assume_leader or broker.connection.is_configured):
        raise SettingsError(
            "nothing says which partitions the broker leads, so nothing would be archived. Set "
            "broker.connection.bootstrap_servers, the broker next to the sidecar first (such as [localhost:9092, "
            "kafka:9092]). Where each partition has one replica, broker.assume_leader is enough"
        )
    if "http.bind" in loaded.sources and (
        http.address is None or http.address[0] not in _ALL_ADDRESSES or http.address[1] != RECIPE_PORT
    ):
        raise SettingsError(
            f"http.bind {http.bind} ({loaded.sources['http.bind']}): the liveness probe and Prometheus reach port "
            f"{RECIPE_PORT} from outside the container. Leave it out, or write 0.0.0.0:{RECIPE_PORT}. The Helm "
            "chart supports other ports"
        )


def _size_remarks(settings: Settings) -> str:
    """Comments where the sizes in the recipe are not enough: a JVM for compaction, large parts, work files of compaction."""
    from sidecar.doctor.machine import memory_needed_bytes, work_needed_bytes

    memory_mebibytes = -(-memory_needed_bytes(settings, cores=2) // MIB)
    work_mebibytes = -(-work_needed_bytes(settings) // MIB)
    remarks = ""
    if memory_mebibytes > RECIPE_MEMORY_BYTES // MIB:
        remarks += (
            f"# With these settings the container needs {memory_mebibytes} MiB: raise its memory, request and limit, which is "
            f"{RECIPE_MEMORY_BYTES // MIB}Mi in the recipe.\n"
        )
    if work_mebibytes > RECIPE_WORK_BYTES // MIB:
        remarks += (
            f"# With these settings compaction may write {work_mebibytes} MiB: raise the sizeLimit of tiered-sidecar-work, "
            f"{RECIPE_WORK_BYTES // MIB}Mi in the recipe,\n"
            "# beyond which the broker's pod is evicted, or make it an ephemeral claim.\n"
        )
    if work_mebibytes > RECIPE_WORK_REQUESTED_BYTES // MIB:
        requested_mebibytes = (RECIPE_EPHEMERAL_BYTES - RECIPE_WORK_REQUESTED_BYTES) // MIB + work_mebibytes
        remarks += (
            f"# Unless that volume is a claim, request {requested_mebibytes}Mi of ephemeral-storage for the container instead of "
            f"{RECIPE_EPHEMERAL_BYTES // MIB}Mi. A node whose\n"
            "# disk fills evicts pods that use more than they request first.\n"
        )
    return remarks
