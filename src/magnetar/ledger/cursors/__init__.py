"""Cursors: how far each subscription of a log has read and acknowledged.

- `cursor`: one reading state, in memory; `store`: the port of an engine to a log's cursors.
- `kept` and `keeper`: cursors in the metadata store, many of them with one commit.

May import: `ledger.formats`, `ledger.errors`, `ledger.values`, `metadata`.
"""
