"""What a connection needs, whatever is spoken on it: listeners, budgets of memory, and the order of requests.

Broker and proxy both serve by these parts.

- `listeners`, `url_listeners`: a place to serve on: its name, its address, what clients are told of it.
- `connections`, `memory`: how many connections there may be, and one budget for all that clients make the broker hold.
- `serving`: which requests of a connection may begin while others wait. States and their table are in its docstring.
- `reading`: whether a connection is read, as a function of facts and not of events.
- `pace`, `eager`: long loops give others a turn; short requests run without a task.
- `fetch_sessions`, `wakeups`: KIP-227, and parked fetches.
- `idle_poll`, `writing`: looking once more before the loop sleeps; answers that lie in parts.

May import: `auth` (TLS contexts), `settings`, `base` and below.
"""
