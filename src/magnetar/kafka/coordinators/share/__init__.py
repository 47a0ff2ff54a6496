"""Share groups (KIP-932): their members, and which partitions each member fetches from.

The group's coordinator does not know which records members hold: see `magnetar.kafka.shares`.
"""
