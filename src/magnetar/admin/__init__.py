"""What an operator can ask or do, as values; the command line, REST and tests only render them.

- `topics`, `groups`, `offsets`, `configs`, `quotas`, `transactions`, `users`, `permissions`, `tokens`: over Kafka's
  protocol where that has a word for it, so that these work against any Kafka broker.
- `explain`, `why_group`, `why_partition`: everything known of one record, and the reason why something stands still.
- `questions`, `live`: questions that only a running broker can answer, gathered on its event loop.
- `broker_state`, `shown_settings`, `telling`: what a broker says of itself, for the doctor and for bundles.
- `handler`, `server`, `rest`: the ways in: a socket in the data directory, and HTTP. `client` is the other end.

May import: the protocol rooms, `node`, and below.
"""
