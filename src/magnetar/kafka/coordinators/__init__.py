"""Coordinators: pure deciders over facts, and the thin shell that appends the facts and then gives the answers.

facts     the records of ``__consumer_offsets``, as Kafka writes them
group     one classic group: its members, its state, its committed offsets
timers    deadlines, as values
classic   decides joining, syncing, heartbeats, leaving
offsets   decides commits, fetches, deletions, expiry
decider   the two together over one partition: replay and snapshot
log       where facts are kept (a port, and a memory implementation)
shard     one partition at work: decide, append, answer, wake up for deadlines
groups    `GroupCoordinator`, which handlers and operators call
"""
