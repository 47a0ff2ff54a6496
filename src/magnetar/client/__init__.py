"""A small blocking client of Kafka's protocol that moves whole record batches: what the Spark pipeline talks with.

Stock libraries hand out records one by one and take them so; here batches stay bytes, and the Arrow kernels of
`magnetar.records` open and make them. It uses the codec of `magnetar.wire.kafka`, nothing else of the broker, and works
with any broker that speaks Kafka's protocol.
"""
