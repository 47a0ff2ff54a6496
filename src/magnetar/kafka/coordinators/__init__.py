"""Coordinators of groups: pure deciders over facts, and the thin shell that appends the facts and then answers.

groups    `GroupCoordinator`, which handlers and operators call: finds a group's partition, and asks its shard
decider   one partition of ``__consumer_offsets`` as a value: replay, snapshot, and a method for each request
kinds     the table of the kinds of groups, and how a name changes its kind
classic   the rules of classic groups: joining, syncing, heartbeats, leaving (`rebalance`: their generations)
modern    what consumer, share and streams groups have in common; each of these has a folder of its own
offsets   commits, fetches, deletions, expiry, for groups of all kinds
facts     the records of offsets and of classic groups, as Kafka writes them
group     the books of one classic group
topics    what groups see of topics, and the names that regular expressions match

A classic heartbeat's way: ``handlers/heartbeat``, `groups`, `magnetar.coordination.shard`, `decider`, `classic`; or
``consumer/classic_members`` where the group has gone over to the consumer protocol.
"""
