"""FastStream over aiokafka, at least once: the next offset is committed when the answer was written."""

import asyncio
import sys

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker

bootstrap, source, target, _ = sys.argv[1:]
broker = KafkaBroker(bootstrap, compression_type="gzip", acks="all")


@broker.subscriber(
    source, group_id="faststream", auto_offset_reset="earliest", ack_policy=AckPolicy.NACK_ON_ERROR
)
@broker.publisher(target)
async def double(value: int) -> bytes:
    return b"%-200d" % (2 * value)


asyncio.run(FastStream(broker).run())
