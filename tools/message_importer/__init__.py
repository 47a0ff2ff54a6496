"""Turns Kafka's message definitions into the Python modules of ``magnetar.wire.kafka.messages``."""
