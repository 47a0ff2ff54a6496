"""Coordinators of groups: pure deciders over facts, and the thin shell that appends the facts and then answers.

groups    `GroupCoordinator`, which handlers and operators call: passes a request to the shard of the group's partition
decider   one partition of ``__consumer_offsets`` as a value: replay, snapshot, and a method for each request
kinds     the table of the kinds of groups, and how a name changes its kind
classic   the rules of classic groups: joining, syncing, heartbeats, leaving (`rebalance`: their generations)
modern    the common part of consumer, share and streams groups; each of these has a folder of its own
offsets   commits, fetches, deletions, expiry, for groups of all kinds
facts     the records of offsets and of classic groups, as Kafka writes them
group     the state of one classic group
topics    what groups see of topics, and the names that regular expressions match

The path of a classic heartbeat: ``handlers/heartbeat``, `groups`, `magnetar.coordination.shard`, `decider`, `classic`;
or ``consumer/classic_members`` if the group has migrated to the consumer protocol. In a classic group it appends no
fact, and its answer waits only for facts that were decided before it and are still being written.
"""
