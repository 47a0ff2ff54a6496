"""The protocol handler "kafka": Kafka's APIs and the rules behind them.

- `handler`: what starts, and in which order. `server`, `connection`: sockets, and requests cut out of them.
- `route`: one line for each API. `handlers/`: a file for each. `authorization/`: what each asks of the client's rights.
- `partitions/`: checking a batch, appending it, reading it. `configs/`, `quotas/`, `sasl/`: what their names say.
- `coordinators/`: groups of all kinds (classic, consumer, share, streams). `transactions/`, `shares/`: the others.

A request's way: `connection` -> `route` -> `authorization` -> `handlers` -> `partitions` or a coordinator.

May import: `schema_registry`, `node`, and below; never `pulsar`.
"""
