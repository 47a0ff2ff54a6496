"""The codecs of both wire protocols, on a floor below the broker, for servers and clients.

``magnetar.wire.kafka`` and ``magnetar.wire.pulsar`` turn bytes into messages and back. They know nothing of topics,
ledgers or connections, so that the broker, its clients, and one broker that asks another use the same ones.
"""
