"""A mechanism of SASL that Kafka does not have."""

BETWEEN_BROKERS = "MAGNETAR-BROKER"
"""SCRAM-SHA-256 by which one broker of a cluster proves to another that it is one: with a password that all of them
know from the metadata store. It is served wherever SASL is, and not among those that clients are told of."""
