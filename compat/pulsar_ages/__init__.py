"""Pulsar's clients of every age: what is asked of them, and what is stored then."""
