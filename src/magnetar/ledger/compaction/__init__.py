"""Compaction on any engine: the newest message of every key, copied to ledgers of their own.

- `compactor`: when a log is compacted, and how what was written takes the place of history.
- `runs`: one run, from reading entries to the draft; `job`: what a run is about; `passes` and `pieces`: how it chooses.
- `workers`, `process`: where the passes run, for they take the processor's time.

An engine lends streams of entries and a writer (`magnetar.ledger.port`); nothing here knows which engine it is.

May import: `ledger.port` and what it is made of, `records`.
"""
