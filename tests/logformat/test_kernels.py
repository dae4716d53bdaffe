"""Checksums in every form the machine may need, and the choice between them."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import crc32c as library
import llvmlite.binding
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import ir

from sidecar.logformat import kernels
from sidecar.logformat.crc import crc32c as kernel
from sidecar.logformat.crc import folding

FORMS = [
    (kernel.crc32c_portable, library.crc32c),
    *([(kernel.crc32c_hardware, library.crc32c)] if kernel.INSTRUCTIONS else []),
    (kernel.crc32c, library.crc32c),
    (kernel.crc32_ieee, zlib.crc32),
]


def computed(form: Any, data: bytes, crc: int = 0) -> int:
    array = np.frombuffer(data, dtype=np.uint8)
    return int(form(array.ctypes.data, array.ctypes.data + len(data), np.uint32(crc)))


@pytest.mark.parametrize(("form", "reference"), FORMS)
def test_check_values_of_the_algorithms(form: Any, reference: Any) -> None:
    assert computed(form, b"123456789") == (0xE3069283 if reference is library.crc32c else 0xCBF43926)
    assert computed(form, b"") == 0


@pytest.mark.parametrize(("form", "reference"), FORMS)
@given(
    seed=st.binary(min_size=1, max_size=40),
    size=st.integers(0, 60_000),
    skip=st.integers(0, 9),
    cut=st.integers(0, 60_000),
)
def test_checksums_equal_the_library_at_any_length_and_alignment(
    form: Any, reference: Any, seed: bytes, size: int, skip: int, cut: int
) -> None:
    data = (seed * (size // len(seed) + 2))[skip : skip + size]
    assert computed(form, data) == reference(data)
    cut = min(cut, len(data))
    assert computed(form, data[cut:], computed(form, data[:cut])) == reference(data)


@pytest.mark.parametrize(
    ("triple", "cpu_name", "features", "expected"),
    [
        ("x86_64-unknown-linux-gnu", None, {"sse4.2": True, "crc32": True}, "x86"),
        ("x86_64-unknown-linux-gnu", None, {"sse4.2": True}, "x86"),
        ("x86_64-unknown-linux-gnu", None, {"sse4.2": True, "crc32": False}, None),
        ("x86_64-unknown-linux-gnu", None, {}, None),
        ("x86_64-unknown-linux-gnu", "generic", {"sse4.2": True}, None),
        ("x86_64-unknown-linux-gnu", "x86-64-v2", {}, "x86"),
        ("x86_64-unknown-linux-gnu", "x86-64-v3", {"sse4.2": False}, None),
        ("aarch64-unknown-linux-gnu", None, {"crc": True}, "arm"),
        ("aarch64-unknown-linux-gnu", None, {}, None),
        ("aarch64-unknown-linux-gnu", "generic", {"crc": True}, None),
        ("riscv64-unknown-linux-gnu", None, {"crc": True}, None),
    ],
)
def test_the_instruction_is_used_only_where_the_target_has_it(
    triple: str, cpu_name: str | None, features: dict[str, bool], expected: str | None
) -> None:
    assert kernel.instruction_set(triple, cpu_name, features) == expected


@pytest.mark.parametrize("form", [kernel.crc32c_portable, kernel.crc32c])
def test_checksums_of_every_length_and_alignment(form: Any) -> None:
    """Around each block size of the folding form, at each distance from a word."""
    data = np.random.default_rng(7).integers(0, 256, 2 * kernel.LONG_BLOCK_BYTES + 4096, dtype=np.uint8)
    address, raw = data.ctypes.data, data.tobytes()
    near = [block + more for block in (kernel.LONG_BLOCK_BYTES, 2 * kernel.LONG_BLOCK_BYTES) for more in range(-20, 20)]
    for size in (*range(2 * kernel.SHORT_BLOCK_BYTES + 20), *near, kernel.LONG_BLOCK_BYTES + kernel.SHORT_BLOCK_BYTES):
        begin, crc = size % 65, size * 2654435761 % 2**32
        found = int(form(address + begin, address + begin + size, np.uint32(crc)))
        assert found == library.crc32c(raw[begin : begin + size], crc), (size, begin)


@pytest.mark.parametrize(
    ("triple", "cpu_name", "missing", "expected"),
    [
        ("x86_64-unknown-linux-gnu", None, None, True),
        ("x86_64-unknown-linux-gnu", "host", None, True),
        ("x86_64-unknown-linux-gnu", None, "vpclmulqdq", False),
        ("x86_64-unknown-linux-gnu", None, "pclmul", False),
        ("x86_64-unknown-linux-gnu", "x86-64-v3", None, False),
        ("aarch64-unknown-linux-gnu", None, None, False),
    ],
)
def test_folding_is_used_only_where_the_target_has_all_of_it(
    triple: str, cpu_name: str | None, missing: str | None, expected: bool
) -> None:
    features = {name: name != missing for name in folding.NEEDED}
    assert folding.can_fold(triple, cpu_name, features) is expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (None, {"sse4.2", "pclmul", "avx2", "vpclmulqdq"}),
        ("", set()),
        ("-vpclmulqdq", set()),
        ("+sse4.2, +pclmul,+avx2,+vpclmulqdq,+avx512f", {"sse4.2", "pclmul", "avx2", "vpclmulqdq"}),
        ("+sse4.2,+pclmul,+avx2,-vpclmulqdq", {"sse4.2", "pclmul", "avx2"}),
        ("+sse4.2,+pclmul,+avx2,+vpclmulqdq,-avx", {"sse4.2", "pclmul", "vpclmulqdq"}),
        ("+sse4.2,+pclmul,-sse3", {"pclmul"}),
        ("+sse4.2,-sse4.2", set()),
    ],
)
def test_what_the_user_has_set_for_the_compiler_counts_instead_of_the_processor(
    asked: str | None, expected: set[str]
) -> None:
    features = kernel.usable_features(dict.fromkeys(folding.NEEDED, True), asked)
    assert {name for name, usable in features.items() if usable} == expected


CHECKSUM = """
import sys
import numpy as np
from sidecar.logformat.crc import crc32c
data = np.frombuffer(bytes(range(256)) * 400, np.uint8)
print(int(crc32c.checksum(2, data, np.uint32(0))))
"""


@pytest.mark.parametrize(
    "variables",
    [
        {"NUMBA_CPU_FEATURES": "+sse4.2,+crc32,+pclmul,+avx2,-vpclmulqdq"},
        {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": "-sse4.2"},
    ],
    ids=lambda variables: " ".join(variables.values()),
)
def test_a_process_with_fewer_features_computes_the_same(variables: dict[str, str], tmp_path: Path) -> None:
    """In a process of its own: an instruction that LLVM does not have ends it."""
    done = subprocess.run(
        [sys.executable, "-c", CHECKSUM],
        env={**os.environ, **variables, "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == library.crc32c(bytes(range(256)) * 400)


def test_the_arm_form_compiles_to_its_instructions() -> None:
    llvmlite.binding.initialize_all_targets()
    llvmlite.binding.initialize_all_asmprinters()
    module = ir.Module()
    module.triple = "aarch64-unknown-linux-gnu"
    wide, byte = ir.IntType(64), ir.IntType(8)
    function = ir.Function(module, ir.FunctionType(wide, [wide, wide, byte]), "two_steps")
    builder = ir.IRBuilder(function.append_basic_block())
    state = kernel.emit_step(builder, kernel.INSTRUCTION["arm"][0], function.args[0], function.args[1])
    builder.ret(kernel.emit_step(builder, kernel.INSTRUCTION["arm"][1], state, function.args[2]))
    target = llvmlite.binding.Target.from_triple(module.triple)
    machine = target.create_target_machine(features="+crc")
    assembly = machine.emit_assembly(llvmlite.binding.parse_assembly(str(module)))
    assert "crc32cx" in assembly
    assert "crc32cb" in assembly


def read(data: bytes) -> tuple[int, int]:
    array = np.frombuffer(data, dtype=np.uint8)
    address = array.ctypes.data
    value, end = kernels.long_varint(address, address + len(data), kernels.LONGEST_LONG)
    return int(value), (int(end) - address if end >= 0 else -1)


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("00", 0),
        ("01", -1),
        ("02", 1),
        ("03", -2),
        ("7e", 63),
        ("7f", -64),
        ("8001", 64),
        ("ac02", 150),
        ("feffffff0f", 2**31 - 1),
        ("ffffffff0f", -(2**31)),
        ("feffffffffffffffff01", 2**63 - 1),
        ("ffffffffffffffffff01", -(2**63)),
    ],
)
def test_known_varints(encoded: str, value: int) -> None:
    data = bytes.fromhex(encoded)
    assert read(data) == (value, len(data))
    assert read(data[:-1]) == (0, -1)


def test_a_varint_without_end_is_refused() -> None:
    assert read(b"\xff" * 11) == (0, -1)


def test_a_process_that_can_cache_nothing_and_knows_no_instruction_still_scans() -> None:
    program = (
        "import numba.core.caching as caching\n"
        "caching.CacheImpl._locator_classes = []\n"  # as where no folder can be written
        "from sidecar.logformat import batches\n"
        "from sidecar.logformat.crc import crc32c\n"
        "from tests.logformat.golden_bytes import COMMIT_MARKER, MESSAGE_V1, THREE_RECORDS\n"
        "scanner = batches.scan_bytes(MESSAGE_V1 + THREE_RECORDS + COMMIT_MARKER)\n"
        "print([int(row) for chunk in scanner for row in chunk.base_offset], scanner.end, crc32c.INSTRUCTIONS)\n"
    )
    environment = os.environ | {"NUMBA_CPU_NAME": "generic"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[0, 100, 103] exact None"
