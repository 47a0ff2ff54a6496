"""Quix Streams, exactly once: each number is read, doubled and written in one transaction with its offset."""

import sys

from quixstreams import Application

bootstrap, source, target, state = sys.argv[1:]
app = Application(
    broker_address=bootstrap,
    consumer_group="quix",
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=0.5,
    state_dir=state,
    auto_create_topics=False,
    producer_extra_config={"compression.type": "gzip"},
)
numbers = app.topic(source, value_deserializer="bytes", key_deserializer="bytes")
doubled = app.topic(target, value_serializer="bytes", key_serializer="bytes")
frame = app.dataframe(numbers).apply(lambda value: b"%-200d" % (2 * int(value)))
frame.to_topic(doubled, key=lambda value: value)
app.run()
