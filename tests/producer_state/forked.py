"""What a program prints in a process of its own in which numba is loaded: to load it takes longer than most programs do."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
from numba import njit

# The first kernel also loads what compiles.
njit(lambda rows: rows[0] + rows[1])(np.ones(2))


def printed(directory: Path, program: str) -> list[str]:
    """The words, from a program that finds modules in this directory."""
    # Bytecode is kept by time and size, too, and is not meant here.
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(directory))
    with redirect_stdout(StringIO()) as text:
        exec(program, {})  # noqa: S102 - the tests have written it
    return text.getvalue().split()
