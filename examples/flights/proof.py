"""Whether two sets of records are the same, whatever the order in which they come."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import pyarrow.dataset as ds

Bytes = bytes | None
Headers = Sequence[tuple[str, Bytes]]
Digest = Callable[[Bytes, Bytes, Headers], int]
MODULUS = 1 << 128
_NUMBER = struct.Struct(">i")


def digest(key: Bytes, value: Bytes, headers: Headers) -> int:
    """Return a 128-bit hash of one record."""
    parts = [key, value]
    for name, content in headers:
        parts += (name.encode(), content)
    # Lengths keep the parts apart; -1 tells null from empty.
    text = b"".join(_NUMBER.pack(-1) if part is None else _NUMBER.pack(len(part)) + part for part in parts)
    return int.from_bytes(blake2b(text, digest_size=16).digest(), "big")


@dataclass
class Proof:
    """Grows record by record; equal proofs mean equal records.

    ``digest`` is the sum of the records' own, so order does not matter.
    """

    of_one: Digest = digest
    """The digest of a record."""
    count: int = 0
    digest: int = 0
    offsets: dict[int, list[int]] = field(default_factory=dict)

    def add(self, partition: int, offset: int, key: Bytes, value: Bytes, headers: Headers) -> None:
        """Take one record in."""
        self.digest = (self.digest + self.of_one(key, value, headers)) % MODULUS
        self.count += 1
        self.offsets.setdefault(partition, []).append(offset)

    @property
    def every_offset_once(self) -> bool:
        """Whether each partition's offsets are 0, 1, 2 ... without a gap or a double."""
        return all(sorted(offsets) == list(range(len(offsets))) for offsets in self.offsets.values())

    @property
    def per_partition(self) -> dict[int, int]:
        return {partition: len(self.offsets[partition]) for partition in sorted(self.offsets)}


def proof_of_table(files: Sequence[str], digest: Digest = digest) -> Proof:
    """Read the table's Parquet files with no Spark in the way."""
    proof = Proof(of_one=digest)
    columns = ["partition", "offset", "key", "value", "headers"]
    for batch in ds.dataset(list(files), format="parquet").to_batches(columns=columns):
        rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        for partition, offset, key, value, headers in rows:
            proof.add(partition, offset, key, value, [(h["key"], h["value"]) for h in headers or ()])
    return proof
