"""Compaction on any engine: the newest message of every key, copied to ledgers of their own.

- `compactor`: when a log is compacted, and how the result replaces history.
- `runs`: one run, from reading entries to the draft; `job`: its input; `passes` and `pieces`: its choices.
- `workers`, `process`: where the passes run, for they take the processor's time.

An engine provides streams of entries and a writer (`magnetar.ledger.port`); nothing here knows which engine it is.

May import: `ledger.port` and what it is made of, `records`.
"""
