"""What consumer, share and streams groups have in common: Kafka calls them modern, and classic ones not.

group    the books of one group: epoch, members, targets, offsets
facts    what a record says about a group, and how one is made
members  the rules: a new epoch, a new target, sessions, leaving, silence

Each kind adds its own to these; `magnetar.kafka.coordinators.kinds` has the table of them.
"""
