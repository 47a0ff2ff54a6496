"""Formats: what lies on disk and in the metadata store, byte by byte, and nothing that does I/O with it.

- `info`, `cursor_info`, `offload_context`: Pulsar's protobuf of managed ledgers, cursors and offloaded ledgers;
  `protobuf` and `ack_sets`: how these are written.
- `layout`: the frames of a ledger's file; `sparse`: the index beside it, which is also a checkpoint.
- `packed`: KoP's offsets from before Pulsar had an index.

Brokers, Spark's tasks and `doctor` read by the same functions.

May import: `ledger.errors`, `ledger.values`, `ledger.boot`, `records`.
"""
