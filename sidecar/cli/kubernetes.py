"""`k8s render`: what puts the sidecar beside the brokers of a chart or operator, as text to apply."""

from __future__ import annotations

import json
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from sidecar import __version__
from sidecar.cli.options import GlobalOptions
from sidecar.errors import SettingsError

JSON_VERSION = 1
RECIPES_FILE: Final = Path(__file__).parent / "recipes.json"
"""By host and variant: rendered from the Helm chart, which has the one definition of the container. A test compares."""
_NAME_CHARACTERS_MAX: Final = 50


class Host(StrEnum):
    """What runs the brokers."""

    BITNAMI = "bitnami"
    KOPERATOR = "koperator"
    CFK = "cfk"
    PLAIN = "plain"


def render(
    options: GlobalOptions,
    host: Annotated[
        Host,
        typer.Option(
            "--for", metavar="HOST", help="bitnami: chart; koperator, cfk: operators; plain: any StatefulSet."
        ),
    ],
    image: Annotated[
        str, typer.Option(metavar="IMAGE", help="The image of the sidecar, best with its digest.")
    ] = f"tiered-sidecar:{__version__}",
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="ConfigMap NAME-settings holds the settings: of the chart, or of `k8s settings`.",
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
            help="Secret with the token of the status page, as key token. Default: everybody may look.",
        ),
    ] = None,
    heal: Annotated[
        bool, typer.Option("--heal", help="With the init container that creates missing producer snapshots.")
    ] = False,
) -> int:
    """Print values, a patch or a resource that puts the sidecar beside a host's brokers.

    The same text as in the notes of the Helm chart; volumes, directories and user are those that the host has by default.
    """
    from sidecar.cli.output import print_json

    require_name("--name", name)
    for option, value in (("--image", image), ("--secret", secret), ("--token", token)):
        if value is not None and (not value or any(character.isspace() for character in value)):
            raise SettingsError(f"{option} {value!r}: expected a name without spaces")
    text = recipe(host, image=image, name=name, secret=secret, token=token, heals=heal)
    if options.json:
        print_json({"kind": "kubernetes_recipe", "version": JSON_VERSION, "for": host.value, "text": text})
    else:
        typer.echo(text, nl=False)
    return 0


def require_name(option: str, name: str) -> None:
    """Raises SettingsError unless objects of Kubernetes can be named so, as the chart names them."""
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
        raise SettingsError(
            f"{option} {name!r}: expected lower-case letters, digits and hyphens, a letter first and no hyphen last"
        )
    if len(name) > _NAME_CHARACTERS_MAX:
        raise SettingsError(
            f"{option} {name}: expected at most {_NAME_CHARACTERS_MAX} characters, as the chart makes them"
        )


def recipe(host: Host, *, image: str, name: str, secret: str | None, token: str | None, heals: bool) -> str:
    """The text for a host."""
    texts = json.loads(RECIPES_FILE.read_text(encoding="utf-8"))
    text = str(texts[host][variant(heals=heals, has_secret=secret is not None, has_token=token is not None)])
    for mark, word in (("@NAME@", name), ("@IMAGE@", image), ("@SECRET@", secret or ""), ("@TOKEN@", token or "")):
        text = text.replace(mark, word)
    return text


def variant(*, heals: bool, has_secret: bool, has_token: bool) -> str:
    """The name of one of a host's texts."""
    parts = (("heal", heals), ("secret", has_secret), ("token", has_token))
    return "+".join(part for part, is_there in parts if is_there) or "sidecar"
