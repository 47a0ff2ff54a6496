"""The common part of consumer, share and streams groups: Kafka calls them modern, and classic ones not.

group    the state of one group: epoch, members, targets, offsets
facts    reading and writing the records of a group
members  the rules: a new epoch, a new target, sessions, leaving, silence

Each kind adds its own to these; `magnetar.kafka.coordinators.kinds` has the table of them.
"""
