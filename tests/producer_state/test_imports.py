"""What importing costs."""

from __future__ import annotations

import subprocess
import sys


def test_importing_loads_no_compiler() -> None:
    modules = ("snapshot", "table", "digest", "replay", "holes", "window", "compare")
    imports = "; ".join(f"import producer_state.{module}" for module in modules)
    subprocess.run([sys.executable, "-c", f"import sys; {imports}; assert 'numba' not in sys.modules"], check=True)
