"""Pulsar's admin REST: the paths, bodies and errors that pulsar-admin, pulsarctl and the clients' suites know."""
