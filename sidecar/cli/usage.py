"""Wrong usage looks like every other error: one line on stderr, an object on stdout where JSON was asked for, exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import typer
from typer.core import TyperGroup

UsageError: Any = typer.BadParameter.__base__
"""The class of all usage errors. Where typer keeps it differs between its versions."""


class OneLineErrors(TyperGroup):
    """A command whose usage errors are one line, without boxes."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """See click's `Command.main`."""
        inner = partial(super().main, args, prog_name, complete_var, False, windows_expand_args, **extra)
        if not standalone_mode:
            return inner()
        try:
            code = inner()
        except UsageError as error:
            if type(error).__name__ != "NoArgsIsHelpError":  # that one has shown the help already
                what = _one_line(error)
                sys.stderr.write(f"error: {what}\n")
                if "--json" in (sys.argv[1:] if args is None else args):
                    _answer(error, what)
            sys.exit(error.exit_code)
        sys.exit(code if isinstance(code, int) else 0)


def _answer(error: Any, what: str) -> None:
    """The object that whoever reads stdout expects; see `answering_json`."""
    from sidecar.cli.output import print_json

    names: list[str] = []
    context = error.ctx
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    found = {"kind": "_".join(names).replace("-", "_") or "usage", "version": 1, "error": what}
    print_json({**found, "exit_code": error.exit_code})


def _one_line(error: Any) -> str:
    text = " ".join(error.format_message().split()).rstrip(".").replace(": Value error, ", ": ")
    command = error.ctx.command_path if error.ctx is not None else "tiered-sidecar"
    return f"{text[:1].lower()}{text[1:]}; see {command} --help"
