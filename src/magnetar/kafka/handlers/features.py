"""The features of KIP-584 that clients may ask for, each at the one level that this broker has.

``transaction.version`` is at 2, by which clients know the newer transactions (KIP-890), and so is ``share.version``: at
1 clients keep away from share groups no more (KIP-932), and 2 says that these have dead-letter queues (KIP-1191).
``group.version``, by which tools know the consumer protocol (KIP-848), and ``streams.version`` (KIP-1071) are at 1. The
others are listed as a broker would list them at level 0. All begin at level 0, as Kafka's do. ``metadata.version``
and ``kraft.version`` speak of the controllers' log, which there is none of, so they are absent.
"""

from __future__ import annotations

LEVELS = {
    "group.version": 1,
    "share.version": 2,
    "streams.version": 1,
    "transaction.version": 2,
    "eligible.leader.replicas.version": 0,
}
"""By name; it is both the level that is in force and the highest."""
