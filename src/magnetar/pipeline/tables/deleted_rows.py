"""Rows of a file that are deleted while the file stays as it is: their numbers, from 0, as a 64-bit Roaring bitmap.

That is what Delta's deletion vectors are, and what Iceberg's position deletes come to. A bitmap travels as bytes, in
the portable form that all of Roaring's libraries read.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64


def packed(numbers: Any) -> bytes:
    """Return row numbers (a bitmap, or what numpy makes an array of) as bytes; none of them is no bytes."""
    if not isinstance(numbers, BitMap64):
        numbers = BitMap64(array("Q", np.asarray(numbers, np.uint64).tobytes()))
    if not numbers:
        return b""
    numbers.run_optimize()
    return bytes(numbers.serialize())


def unpacked(deleted: bytes) -> BitMap64:
    """Return the bitmap; raise ``ValueError`` if the bytes are none."""
    return BitMap64.deserialize(deleted) if deleted else BitMap64()


def without(batch: pa.RecordBatch, first: int, deleted: BitMap64) -> pa.RecordBatch:
    """Return the rows of a batch, which are numbered from ``first``, that are not deleted."""
    if not deleted.range_cardinality(first, first + batch.num_rows):
        return batch
    return batch.filter(pa.array(is_left(first, batch.num_rows, deleted)))


def is_left(first: int, count: int, deleted: BitMap64) -> Any:
    """Return for each of ``count`` rows from ``first`` on whether it is there still, as an array of numpy's."""
    import numpy as np

    left = np.ones(count, np.bool_)
    gone = deleted & BitMap64(range(first, first + count))
    left[np.frombuffer(gone.to_array(), np.uint64).astype(np.int64) - first] = False
    return left
