"""Machine code (numba) for batches: one call for a batch, no Python object per record.

Each kernel has a plain twin outside this room that says the same record by record; tests hold the two together. Where
numba is not installed, or while a kernel is being compiled, the plain form works.

- `bytes`: varints, UTF-8, base64 and protobuf's fields, as all kernels read and write them.
- `arrow`, `encode`: records to Arrow columns, and back. `frames`: a walk along a ledger's file.
- `check`: whether a producer's batch may be stored.
- `compaction`: the keys of a batch, the last offset of each, and what is copied.
- `kafka`, `pulsar`, `pulsar_many`: Kafka's records to Pulsar's messages, and back.
- `schema_ids`: Confluent's frame of schema ids around keys and values.

May import: the rest of `records` that knows no kernel, and numba.
"""
