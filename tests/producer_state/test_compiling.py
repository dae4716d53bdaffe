"""What is kept of a kernel is for the files that it is made of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

DECLARES = (
    "from pathlib import Path\nfrom producer_state.compiling import compilers\n"
    "native, native_inline = compilers(Path(__file__).parent)\n"
)
CALLED = "from kernels_at_hand import native\nSUMMAND = 1\n@native\ndef called(x):\n    return x + 1\n"
CALLER = "from kernels_at_hand import native\nfrom kernels_at_hand.called import SUMMAND, called\n"
CALLER += "@native\ndef caller(x):\n    return called(x) * 10 + SUMMAND\n"
PRINTS = "from kernels_at_hand.caller import caller\nprint(caller(1), sum(caller.stats.cache_hits.values()))"


def test_a_change_in_what_a_kernel_calls_counts_though_the_file_keeps_its_time_and_size(tmp_path: Path) -> None:
    folder = tmp_path / "kernels_at_hand"
    folder.mkdir()
    for name, content in (("__init__", DECLARES), ("called", CALLED), ("caller", CALLER)):
        (folder / f"{name}.py").write_text(content)
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])

    def result() -> list[str]:
        # Bytecode has the same weakness, and is not meant here.
        environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", PRINTS], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    assert [result(), result()] == [["21", "0"], ["21", "1"]]
    called = folder / "called.py"
    before = called.stat()
    for changed, expected in ((CALLED.replace("x + 1", "x + 2"), "31"), (CALLED.replace("= 1", "= 5"), "25")):
        called.write_text(changed)
        os.utime(called, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert called.stat().st_size == before.st_size
        assert result() == [expected, "0"]
