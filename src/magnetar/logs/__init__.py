"""The logs of partitions while a broker has them open: one registry for all protocols, and what is remembered of each.

- `open_logs`: a log is opened once, however many protocols ask for it, and closed when the last holder lets go.
- `producers`, `producer_log`, `producer_snapshot`: Kafka's producers and transactions of one partition (KIP-98): live,
  replayed from the log, and as a snapshot that spares the replay.
- `decided`: which entries below the last stable offset count for readers of messages.
- `leader_epochs`: where each leader epoch began (KIP-101, KIP-320).
- `compaction`, `offloading`, `backlogs`: how a topic is compacted, when its ledgers go to tiered storage, and how long
  its backlog may become.
- `storage/`: opening the metadata store and the engine that settings name.

May import: `cluster`, `figures`, `topics`, `settings`, `base` and below.
"""
