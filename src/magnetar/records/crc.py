"""CRC32C, from the package ``crc32c`` but without its start-up.

That package reads its own version through ``importlib.metadata`` and imports a command line: 20 to 30 ms that every
broker and every command would pay. Only its C extension is wanted.

What it cannot do is to put the CRCs of two pieces together. A producer's CRC has been held against its bytes when they
are stored, and the ledger's own CRC covers those too: to count them once more takes 11 us for 64 KB, a tenth of such a
request; `combined` takes 2, however many they are.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec


def _extension() -> Callable[..., int] | None:
    """Return the extension's function, or None where the package is laid out in another way."""
    package = find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", list(places or ()))
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., int] | None = getattr(module, "crc32c", None)
    return found


def _from_package() -> Callable[..., int]:
    from crc32c import crc32c as function

    return function  # type: ignore[no-any-return]


crc32c = _extension() or _from_package()

_REFLECTED = 0x82F63B78  # the polynomial, its highest power first
_ONE = 1 << 31
_DIGIT_BITS = 6
_DIGIT = (1 << _DIGIT_BITS) - 1
MIN_COMBINED_BYTES = 24 << 10
"""Fewer are counted in less time."""
MAX_SIZES = 64
OFTEN = 200
_advances: dict[int, array[int]] = {}  # by ``digit << 8 | place``
_sizes: dict[int, array[int]] = {}  # the same for whole sizes, that come again and again
_met: dict[int, int] = {}  # how often other sizes came


def extended(crc: int, data: bytes | bytearray | memoryview, data_crc: int) -> int:
    """Return what ``crc32c(data, crc)`` would, where that of ``data`` alone is known to be ``data_crc``."""
    size = len(data)
    if (table := _sizes.get(size)) is not None:
        lowest, low, high, highest = crc.to_bytes(4, "little")
        return table[lowest] ^ table[0x100 | low] ^ table[0x200 | high] ^ table[0x300 | highest] ^ data_crc
    if size < MIN_COMBINED_BYTES:
        return crc32c(data, crc)
    met = _met[size] = _met.get(size, 0) + 1
    if met >= OFTEN:
        _learn(size)
    elif len(_met) > MAX_SIZES:
        _met.clear()  # they all differ
    return combined(crc, data_crc, size)


def _learn(size: int) -> None:
    """Keep what so many bytes make of a CRC: batches of records that are all alike are of one size."""
    _met.clear()
    if len(_sizes) >= MAX_SIZES:
        del _sizes[next(iter(_sizes))]
    _sizes[size] = _power(8 * size)


def combined(first: int, second: int, second_bytes: int) -> int:
    """Return the CRC of two pieces, one behind the other, from that of each and the size of the second."""
    place = 0
    while second_bytes:
        if digit := second_bytes & _DIGIT:
            table = _advances.get(digit << 8 | place) or _advance(digit, place)
            lowest, low, high, highest = first.to_bytes(4, "little")
            first = table[lowest] ^ table[0x100 | low] ^ table[0x200 | high] ^ table[0x300 | highest]
        second_bytes >>= _DIGIT_BITS
        place += 1
    return first ^ second


def _advance(digit: int, place: int) -> array[int]:
    """Return what ``digit << 6 * place`` bytes behind it make of a CRC."""
    return _advances.setdefault(digit << 8 | place, _power(8 * (digit << _DIGIT_BITS * place)))


def _power(exponent: int) -> array[int]:
    """Return what so many bits behind it make of a CRC, for each of its bytes.

    They multiply it by x to that power, modulo the polynomial; what they make of it is what they make of its bits.
    """
    power, factor = _ONE, _ONE >> 1  # that is x
    while exponent:
        if exponent & 1:
            power = _product(power, factor)
        factor = _product(factor, factor)
        exponent >>= 1
    bits = []
    for _ in range(32):
        bits.append(power)
        power = power >> 1 ^ (_REFLECTED if power & 1 else 0)
    table = array("I")
    for _ in range(4):
        values = [0]
        for _ in range(8):
            bit = bits.pop()
            values += [value ^ bit for value in values]
        table.extend(values)
    return table


def _product(a: int, b: int) -> int:
    """Multiply two polynomials modulo the CRC's own."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (_REFLECTED if b & 1 else 0)
    return product
