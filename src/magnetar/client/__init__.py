"""A Kafka client that moves whole record batches: the pipeline, the command line and brokers use it.

Stock libraries hand out records one by one and take them so; here batches stay bytes, and the Arrow kernels of
`magnetar.records` open and make them. What is said on a connection is one machine without a socket (`conversation`),
with a shell that blocks (`connection`; `cluster` and what builds on it) and one for an event loop
(`async_connection`). It uses the codec of `magnetar.wire.kafka`, nothing of the broker, and works with any broker that
speaks Kafka's protocol.
"""
