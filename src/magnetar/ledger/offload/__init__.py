"""Tiered storage: sealed ledgers in object stores and directories, in the format that Pulsar's brokers read."""
