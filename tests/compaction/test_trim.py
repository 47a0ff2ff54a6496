"""What was trimmed is not read from copies, either: also after a restart, and by the next compaction."""

from __future__ import annotations

from magnetar.records.batch import decode_records
from magnetar.records.compression import Codec
from magnetar.records.conversion import kafka_batch
from tests.compaction.test_properties import PULSAR, World


async def copies(world: World) -> list[int]:
    """Return the offsets that a reader of what is compacted gets, from the beginning on."""
    found, offset = [], 0
    while entries := await world.log.read_compacted(offset, max_bytes=300):
        found += [each.offset for entry in entries for each in decode_records(kafka_batch(entry.data))]
        offset = entries[-1].last_offset + 1
    return found


async def test_copies_of_what_was_trimmed_are_not_read() -> None:
    world = World()
    await world.open()
    for number in range(9):
        await world.append([(b"%d" % number, b"value")], Codec.none, pulsar=False)
    await world.log.compact(PULSAR)
    assert await copies(world) == list(range(9))
    await world.log.trim(4)
    assert await copies(world) == list(range(4, 9))
    await world.restart()
    assert await copies(world) == list(range(4, 9))
    await world.append([(b"8", b"again")], Codec.none, pulsar=False)
    await world.log.compact(PULSAR)
    assert await copies(world) == [4, 5, 6, 7, 9]
    assert world.engine is not None
    await world.engine.close()
