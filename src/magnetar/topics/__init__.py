"""Topics as facts: names, tenants and namespaces, the catalog, policies, and which value is in force.

Nothing here opens a log or knows a client; these are the records in the metadata store, and the rules on them.

- `names`: the names that clients of either protocol may use for a topic, and the one name that it has here.
- `namespaces`, `policies`, `limits`, `grants`: Pulsar's tenants, namespaces and policies in Pulsar's own JSON.
- `topic`, `catalog`, `just_deleted`: one topic, all topics, and those that were deleted a moment ago.
- `topic_config`, `dynamic`, `effective`: Kafka's configurations, and where the value in force comes from.
- `client_quotas`, `offload_policies`: Kafka's quotas; when and where ledgers go to tiered storage.
- `identity`: the cluster's id, the broker's number, and how often it was started.

May import: `settings`, `base` and below.
"""
