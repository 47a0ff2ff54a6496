"""Tiered storage for any engine: sealed ledgers as objects of Pulsar's offloader.

- `tiering`: a ledger's way there, step by step; `writing`: its two objects; `deletions`: what is to be removed there.
- `offloaded`: reading one back, block by block, through `cache`; `blocks`: their format.
- `objects`: what a store of objects does, with `s3` and `directory`; `place`: where it is; `tiers`: all of a process.

May import: `ledger.formats`, `ledger.ledger_list`, `ledger.errors`, `ledger.values`, `metadata`.
"""
