"""Kafka's wire: bytes in, messages out. Nothing here knows a socket or a topic."""
