"""What is loaded before Spark forks its workers: every kernel that the stages call."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
from itertools import product
from numba.core.dispatcher import Dispatcher
import sidecar.rewriting.preloaded
from sidecar.compaction.rules import CompactionRules, LegacyFormat
from sidecar.compaction_strategy import Strategy
from tests.compaction.engine import compact
from tests.compaction.partitions import partition_in
from tests.golden import VERSIONS, partitions, wall_clock_ms

def loaded():
    return {
        f"{kernel.py_func.__module__}.{name}": kernel.signatures
        for module in list(sys.modules.values()) if module.__name__.startswith("sidecar.compaction")
        for name, kernel in vars(module).items() if isinstance(kernel, Dispatcher)
    }

before = {name: list(signatures) for name, signatures in loaded().items()}
assert any(before.values())
for version in VERSIONS:
    choices = list(product(Strategy, (False, True), LegacyFormat))
    for number, path in enumerate(partitions(version)):
        strategy, exact_keys, legacy_format = choices[number % len(choices)]
        now_ms, partition = wall_clock_ms(version), partition_in(path)
        rules = CompactionRules(now_ms, strategy=strategy, header="h1", exact_keys=exact_keys, legacy_format=legacy_format)
        compact(partition.decided, rules, partition, last_batches=partition.last_batches(now_ms), split_bytes=4096)
print(*(name for name, signatures in loaded().items() if before.get(name) != list(signatures)))
"""


def test_compactions_of_whatever_brokers_wrote_call_no_kernel_that_is_not_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=600, check=False)
    assert (done.stderr, done.stdout.split()) == ("", [])
