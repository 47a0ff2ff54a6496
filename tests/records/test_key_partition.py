"""The partition of one key is the one that the kernel chooses for a column of keys."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa

from magnetar.records.encoder import Columns
from magnetar.records.key_partition import partition_of


def test_keys_go_where_columns_of_keys_go() -> None:
    chance = random.Random(7)
    keys = [b"", b"a", *(chance.randbytes(chance.randrange(40)) for _ in range(500))]
    columns = Columns(
        len(keys),
        key=pa.array(keys, pa.large_binary()),
        value=None,
        times=np.zeros(len(keys), np.int64),
        headers=None,
    )
    for partitions in (1, 3, 7, 100):
        chosen = columns.partitions(None, partitions)
        assert [partition_of(key, partitions, 0) for key in keys] == list(chosen)
    assert partition_of(None, 7, 15) == 1
