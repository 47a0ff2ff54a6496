"""What every part of a broker uses: errors, values, background work, log lines.

Start here only when a name leads here; nothing in this room knows what a topic or a client is.

- `errors`: what the core raises instead of an answer. Each protocol translates these once.
- `setting`, `values`: how one setting is declared, read, checked and shown.
- `background`, `retries`, `once`: work without a client waiting for it, logged and counted when it fails.
- `slices`, `collector`: what keeps long work and the garbage collector from holding the event loop.
- `logs`, `some_lines`, `long_waits`: log lines, a bound on those that clients can provoke, and waits that do not end.
- `offers`, `questions`: how handlers find each other's objects, and how many questions share one message.
- `descriptors`, `unix_sockets`: file descriptors, and sockets that only their owner may use.

May import: `records`, `metadata`, `ledger` (their errors and plain values).
"""
