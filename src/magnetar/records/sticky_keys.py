"""Where the keys of a batch of Pulsar's messages lie among the 65,536 hashes that consumers divide among them.

A key's hash is Pulsar's: MurmurHash3 of the ordering key, or else of the partition key out of base64. In machine code
where that is installed and enough is asked for (`magnetar.records.sticky_keys_kernel`); until it is loaded, in the
background, messages are looked at one by one.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from struct import iter_unpack
from typing import Any, NamedTuple

from magnetar.records.compression import Buffer
from magnetar.records.loading import LoadedLater, loaded
from magnetar.records.mapping import partition_key_of
from magnetar.records.pulsar_plain import singles

HASH_RANGE = 1 << 16
EVERY_HASH = HASH_RANGE
"""Stands for the hashes of a batch that has too many to tell them apart: it may be of any key."""
MAX_HASHES = 256
"""Of one batch that are told apart. What is done for each of them is done on the event loop."""
WORTH_IT = 1 << 20
"""So many bytes of messages looked at one by one, after which machine code is loaded: a tenth of a second of work."""
_SHORT_BYTES = 64
_MASK = 0xFFFFFFFF


class KeyHashes(NamedTuple):
    """Those of one batch."""

    distinct: tuple[int, ...]
    """Each once, the first message's first, at most `MAX_HASHES`; of a batch that has more, the first of them and
    `EVERY_HASH`."""
    of_messages: array[int]
    """That of each message."""

    def within(self, wanted: bytes) -> int:
        """Return whose hashes are ``wanted``, which has a byte for each: a set of batch indexes, as bits."""
        code = _machine.get(4 * len(self.of_messages))
        if code is not None:
            np = code.np
            chosen = np.frombuffer(wanted, np.uint8)[np.frombuffer(self.of_messages, np.int32)]
            return int.from_bytes(np.packbits(chosen, bitorder="little").tobytes(), "little")
        bits = bytearray(len(self.of_messages) // 8 + 1)
        for index, each in enumerate(self.of_messages):
            bits[index >> 3] |= wanted[each] << (index & 7)
        return int.from_bytes(bits, "little")


def murmur3_32(data: bytes) -> int:
    """Return MurmurHash3 for x86, 32 bits, seed 0, without a sign: what Pulsar's brokers and clients hash keys with."""
    value = 0
    whole = len(data) & ~3
    for (word,) in iter_unpack("<I", data[:whole]):
        value ^= _scrambled(word)
        value = (value << 13 | value >> 19) & _MASK
        value = (value * 5 + 0xE6546B64) & _MASK
    if len(data) > whole:
        value ^= _scrambled(int.from_bytes(data[whole:], "little"))
    value ^= len(data)
    value = (value ^ value >> 16) * 0x85EBCA6B & _MASK
    value = (value ^ value >> 13) * 0xC2B2AE35 & _MASK
    return value ^ value >> 16


def _scrambled(word: int) -> int:
    word = word * 0xCC9E2D51 & _MASK
    return (word << 15 | word >> 17) * 0x1B873593 & _MASK


def hash_of_key(key: bytes) -> int:
    """Return where a key lies."""
    return _hash_of_short(key) if len(key) <= _SHORT_BYTES else murmur3_32(key) % HASH_RANGE


@lru_cache(maxsize=4096)
def _hash_of_short(key: bytes) -> int:
    """Keys come again, and to hash one takes 3 us."""
    return murmur3_32(key) % HASH_RANGE


def key_hashes(body: Buffer, messages: int, *, keyless: int) -> KeyHashes:
    """Return the hashes of an uncompressed batch's keys; raise ``EntryCorrupt``.

    ``keyless`` is that of messages without a key, of which it counts in ``distinct`` only where no message has one.
    """
    code = _machine.get(len(body))
    if code is not None:
        np = code.np
        found, distinct = np.empty(messages, np.int32), np.empty(MAX_HASHES + 1, np.int32)
        count = code.hashes(np.frombuffer(body, np.uint8), keyless, found, distinct)
        if count >= 0:
            return KeyHashes(_told_apart(distinct[:count].tolist(), keyless), array("i", found.tobytes()))
    return plain_key_hashes(body, messages, keyless=keyless)


def plain_key_hashes(body: Buffer, messages: int, *, keyless: int) -> KeyHashes:
    """Do the same one message after the other."""
    found = array("i")
    distinct: dict[int, None] = {}
    for _, single, _ in singles(body, messages):
        key = single.ordering_key if single.ordering_key is not None else partition_key_of(single)
        if single.compacted_out or key is None:
            found.append(keyless)
            continue
        found.append(hash_of_key(key))
        distinct[found[-1]] = None
    return KeyHashes(_told_apart(list(distinct), keyless), found)


def _told_apart(distinct: list[int], keyless: int) -> tuple[int, ...]:
    if len(distinct) > MAX_HASHES:
        return distinct[0], EVERY_HASH
    return tuple(distinct) or (keyless,)


class _Machine(LoadedLater):
    """The machine code, once it is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self._code: Any = None

    def get(self, size: int) -> Any:
        """Return the code, or None: then ``size`` bytes are looked at without it, and past `WORTH_IT` it is loaded."""
        if self._code is None:
            self.goes_without(size, WORTH_IT)
        return self._code

    def load(self) -> None:
        if there := loaded("magnetar.records.sticky_keys_kernel"):
            (self._code,) = there


_machine = _Machine()


def use_machine_code() -> None:
    """Have the machine code loaded when this returns."""
    _machine.load()
