"""The protocol handler "pulsar": Pulsar's binary protocol and admin REST on the topics that Kafka clients use.

- `handler`: what starts, and in which order. `server`, `connection`: sockets, commands. `handlers/`: a file for each.
- `topics`, `topic`: a topic while Pulsar clients use it. `dispatch/`: the four kinds of subscriptions, as machines.
- `transactions/`: Pulsar's side of transactions. `group_cursors`: consumer groups shown as subscriptions.
- `rest/`: the admin REST, at Pulsar's paths and in its JSON.

May import: `schema_registry`, `node`, and below; never `kafka`.
"""
