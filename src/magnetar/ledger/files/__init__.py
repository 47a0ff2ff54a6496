"""The engine ``files``: one append-only file per ledger, and one shared journal that makes appends durable."""
