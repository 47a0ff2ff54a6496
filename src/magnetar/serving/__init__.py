"""What a connection needs, whatever is spoken on it: listeners, budgets of memory, and the order of requests.

Broker and proxy both serve by these parts.

- `listeners`, `url_listeners`: a place to serve on: its name, its address, and the address that clients are given.
- `connections`, `memory`: limits of connections, and one budget for the memory that clients make the broker hold.
- `serving`: which requests of a connection may begin while others wait. States and their table are in its docstring.
- `reading`: whether a connection is read, as a function of facts and not of events.
- `pace`, `eager`: long loops give others a turn; short requests run without a task.
- `fetch_sessions`, `wakeups`: fetch sessions (KIP-227), and how an append wakes parked fetches.
- `idle_poll`, `writing`: polling a little longer before the loop sleeps; writing answers that consist of parts.

May import: `auth` (TLS contexts), `settings`, `base` and below.
"""
