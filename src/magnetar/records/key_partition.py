"""The partition of one key, as Kafka producers choose it.

`magnetar.records.kernels.encode` does so for columns, in machine code that takes longer to load than one key is worth.
"""

from __future__ import annotations

_M, _SEED, _ALL = 0x5BD1E995, 0x9747B28C, 0xFFFFFFFF


def partition_of(key: bytes | None, partitions: int, spread: int) -> int:
    """Return the partition of a key; without one, any, as the number ``spread`` has it."""
    if key is None:
        return spread % partitions
    return (_murmur2(key) & 0x7FFFFFFF) % partitions


def _murmur2(key: bytes) -> int:
    found = _SEED ^ len(key)
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * _M & _ALL
        found = (found * _M & _ALL) ^ ((word ^ word >> 24) * _M & _ALL)
    if rest := key[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * _M & _ALL
    found = (found ^ found >> 13) * _M & _ALL
    return found ^ found >> 15
