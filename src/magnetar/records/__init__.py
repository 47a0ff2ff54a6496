"""Bytes at rest: record batches, entries and their conversions. Pure functions that broker and Spark share.

- `batch`, `control`, `compression`: Kafka's record batch (KIP-98), markers, codecs. `check*`: what may be stored.
- `entry`: what one append writes (PIP-70). `pulsar_metadata`, `pulsar_transactions`: Pulsar's message metadata.
- `conversion`, `mapping`, `pulsar_plain`: batches of one world in the other's form; `mapping` is the rules alone.
- `arrow`, `encoder`: batches to Arrow columns and back. `compaction`: keys of an entry, and copies of what stays.
- `kernels/`: the same in machine code. `readers`: which of the two reads; `plain_arrow`, `plain_frames`: without it.

Imports nothing of the house.
"""
