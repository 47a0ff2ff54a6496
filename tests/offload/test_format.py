"""The objects are those of Pulsar's format: read here by its description alone, as Pulsar's own reader does."""

from __future__ import annotations

import struct
import uuid
from pathlib import Path

from magnetar.ledger.formats.info import path_of
from magnetar.ledger.formats.offload_context import decode_offload, encode_offload
from magnetar.ledger.formats.protobuf import fields, message, number
from magnetar.ledger.tiers.place import TierPlace
from magnetar.ledger.values import Offload
from tests.ledger.entries import NOW_MS, read_all
from tests.offload.house import NAME, TieredHouse, filled, sealed


async def test_pulsars_reader_finds_every_entry(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    house = TieredHouse(tmp_path / "data")
    await house.begin()
    log = await house.log(max_ledger_entries=1000)
    await filled(log, 1000)
    (ledger_id,) = sealed(log)
    due = [bytes(entry.data) for entry in await read_all(log)]
    await log.offload(ledger_id, TierPlace("filesystem", path=str(tmp_path / "tiers")))
    stored = await house.metadata.get(path_of(NAME))
    await house.end()
    assert stored is not None
    first = next(value for place, value in fields(stored.value) if place == 1)
    context = dict(fields(dict(fields(first))[5]))
    named = uuid.UUID(int=context[1] << 64 | context[2])  # type: ignore[operator]
    assert (context[3], context[4], context[5]) == (1, 0, NOW_MS)
    data = (tmp_path / "tiers" / f"{named}-ledger-{ledger_id}").read_bytes()
    index = (tmp_path / "tiers" / f"{named}-ledger-{ledger_id}-index").read_bytes()

    # OffloadIndexBlockImpl.fromStream
    magic, length, data_length, header_length, count, size = struct.unpack_from(">IIQQII", index)
    assert (magic, data_length, header_length) == (0xDE47DE47, len(data), 128)
    assert length == 32 + size + 20 * count
    metadata = dict(fields(index[32 : 32 + size]))
    assert (metadata[4], metadata[5], metadata[3]) == (999, 3, sum(map(len, due)))
    rows = [struct.unpack_from(">QIQ", index, 32 + size + 20 * each) for each in range(count)]
    assert [part for _, part, _ in rows] == list(range(1, count + 1))
    assert count > 10

    # BlobStoreBackedReadHandleImpl: straight on, and to the next block where a length is negative
    at, found = rows[0][2] + header_length, []
    while len(found) < 1000:
        (entry_length,) = struct.unpack_from(">i", data, at)
        if entry_length < 0:
            block = max(row for row in rows if row[0] <= len(found))
            assert block[0] == len(found)
            head = struct.unpack_from(">IQQQ", data, block[2])
            assert (head[0], head[1], head[3]) == (0xFBDBABCB, 128, len(found))
            at = block[2] + header_length
            continue
        (entry_id,) = struct.unpack_from(">q", data, at + 4)
        assert entry_id == len(found)
        found.append(data[at + 12 : at + 12 + entry_length])
        at += 12 + entry_length
    assert found == due


def test_contexts_are_kept_as_they_are() -> None:
    for context in (
        Offload(),
        Offload(
            str(uuid.UUID(int=(1 << 128) - 1)), "aws-s3", {"bucket": "b", "region": ""}, True, False, NOW_MS
        ),
        Offload(str(uuid.UUID(int=1)), "", {}, True, True, 5, message(7, b"a segment") + number(9, 3)),
    ):
        assert decode_offload(encode_offload(context)) == context
