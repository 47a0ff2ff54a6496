"""Managed ledgers: the endless log of one partition, made of finite ledgers. The words are Pulsar's."""
