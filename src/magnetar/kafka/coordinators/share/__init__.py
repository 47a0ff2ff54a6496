"""Share groups (KIP-932): who is in one, and which partitions each member fetches from.

What members hold of a partition is no matter of the group's coordinator: see `magnetar.kafka.shares`.
"""
