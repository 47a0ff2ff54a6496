"""Pulsar's clients, by the protocol that Pulsar's own proxy speaks: lookups are told of the proxy, then bytes pass."""
