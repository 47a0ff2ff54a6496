"""Managed ledgers: the endless log of one partition, made of finite ledgers. The words are Pulsar's.

The port lies here: `port` is what a storage engine offers to a broker, made of `pending` (appends), `leases`,
`transactions`, `durations`, `room` (the free space on the disk), `values` and `errors`. `ledger_list` and `looking` are
shared by all engines. Below the port:

- `formats/`: Pulsar's protobuf in the metadata store, the frames of a ledger's file, and its sparse index.
- `cursors/`: reading states of subscriptions. `tiers/`: tiered storage: objects, blocks, caches.

Above it:

- `compaction/`: the newest message of every key, on any engine.
- the engines, which do not know each other. `files/`: one append-only file per ledger, one shared journal.
  `bookkeeper/`: ledgers on bookies. `memory`: the files engine on a disk that forgets.

The path of an append in the files engine, where each is flushed: `port` (`ManagedLedger.append`), ``files/managed``,
``files/appending`` (the entry goes into the ledger's file, that is, the page cache), ``files/journal`` (one write for
all appends that arrived meanwhile), then `pending` reports it durable and `high_watermark` moves.

May import: `metadata`, `records`.
"""
