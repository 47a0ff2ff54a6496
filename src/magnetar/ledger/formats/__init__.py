"""Formats: the bytes on disk and in the metadata store, and nothing that does I/O with them.

- `info`, `cursor_info`, `offload_context`: Pulsar's protobuf of managed ledgers, cursors and offloaded ledgers;
  `protobuf` and `ack_sets`: how these are written.
- `layout`: the frames of a ledger's file; `sparse`: the index next to it, which is also a checkpoint.
- `packed`: KoP's offsets from before Pulsar had an index.

Brokers, Spark tasks and `doctor` read with the same functions.

May import: `ledger.errors`, `ledger.values`, `ledger.boot`, `records`.
"""
