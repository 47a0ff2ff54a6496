"""The runtime of coordinators: decide, append what was decided, then answer and act.

A coordinator (of groups, transactions, share states) is a replicated state machine on one partition of an internal
topic. The machine itself, a *decider*, is pure: it takes a question and returns facts, an answer and actions.

- `decision`: the vocabulary: facts, answers, actions.
- `shard`: one partition at work. An answer never overtakes a fact that was decided before it.
- `shard_states`: the states of a shard. `stated_log`: its log, appended, replayed and compacted.
- `log`: the port to the log. `batches`: facts as record batches. `following`: which partitions this broker has.
- `timers`, `caller`, `refused`: deadlines, the client of a request, and the exception of a refused one.
- `shares/`: a share partition as runs of offsets, pure and without a protocol; work queues that both protocols share.
- `progress`, `transactions`, `transaction_sides`: where Kafka's coordinators and Pulsar's subscriptions meet.

May import: `cluster`, `topics`, `base` and below.
"""
