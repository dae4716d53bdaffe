"""CRC-32C of objects in parts: as S3 writes it, combined from parts, and composed of parts."""

import base64
import binascii
from collections.abc import Sequence
from functools import cache

from crc32c import crc32c

_REFLECTED_POLYNOMIAL = 0x82F63B78
_X = 1 << 30
"""The polynomial x: in reflected order the highest bit is the coefficient of x^0."""
_RELEASE_GIL = 1
_CRC_BYTES = 4


def crc32c_of(body: bytes | bytearray | memoryview, value: int = 0) -> int:
    """CRC-32C of `body`, continued from `value`; other threads run meanwhile."""
    return crc32c(body, value, gil_release_mode=_RELEASE_GIL)


def combine_crc32c(first: int, second: int, second_bytes: int) -> int:
    """CRC-32C of two stretches in a row, from the CRC of each and the length of the second.

    A CRC is a remainder modulo the polynomial, so putting n bytes behind the first stretch multiplies its remainder by x^8n.
    """
    exponent = 8 * second_bytes
    for bit in range(exponent.bit_length()):
        if exponent >> bit & 1:
            first = _multiply(_x_to_the_power_of_two(bit), first)
    return first ^ second


def combine_parts(parts: Sequence[tuple[int, int]]) -> int:
    """CRC-32C of a whole object from (crc32c, size in bytes) of its parts in order."""
    whole = 0
    for crc, size_bytes in parts:
        whole = combine_crc32c(whole, crc, size_bytes)
    return whole


def composite_text(crcs: Sequence[int]) -> str:
    """S3's checksum of checksums, as reported for multipart objects of type COMPOSITE: `<base64>-<number of parts>`."""
    return f"{to_text(crc32c(b''.join(crc.to_bytes(_CRC_BYTES, 'big') for crc in crcs)))}-{len(crcs)}"


def to_text(crc: int) -> str:
    """The base64 of the big-endian bytes: the form of the header `x-amz-checksum-crc32c`."""
    return base64.b64encode(crc.to_bytes(_CRC_BYTES, "big")).decode("ascii")


def from_text(text: str | None) -> int | None:
    """The checksum of a whole object as reported by a store; None where it is absent, composite or unreadable."""
    if text is None or "-" in text:
        return None
    try:
        decoded = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return int.from_bytes(decoded, "big") if len(decoded) == _CRC_BYTES else None


def hex_text(crc: int | None) -> str:
    """8 hexadecimal digits, as everywhere in texts for people; "none" where there is no checksum."""
    return "none" if crc is None else f"{crc:08x}"


def reported_text(text: str) -> str:
    """A checksum of `x-amz-checksum-crc32c` as `hex_text`; with the number of parts where it is one of checksums."""
    base, dash, parts = text.partition("-")
    crc = from_text(base)
    return text if crc is None else f"{hex_text(crc)}{dash}{parts}"


def _multiply(a: int, b: int) -> int:
    """Product of two polynomials modulo the CRC's, all in reflected bit order."""
    product = 0
    for bit in range(31, -1, -1):
        if a >> bit & 1:
            product ^= b
        b = b >> 1 ^ (_REFLECTED_POLYNOMIAL if b & 1 else 0)
    return product


@cache
def _x_to_the_power_of_two(exponent: int) -> int:
    """x^(2^exponent), by squaring."""
    if exponent == 0:
        return _X
    root = _x_to_the_power_of_two(exponent - 1)
    return _multiply(root, root)
