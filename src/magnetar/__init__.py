"""Magnetar: Apache Pulsar's storage model behind Kafka's protocol, and a Spark pipeline on the same ledgers."""

__version__ = "0.1.0"
