"""Kafka's clients: the proxy is leader and coordinator of everything to them, and a client of each broker."""
