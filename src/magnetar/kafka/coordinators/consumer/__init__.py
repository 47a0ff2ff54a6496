"""Groups of the new consumer protocol (KIP-848): the coordinator assigns, and members are led to it one by one.

facts      their records in ``__consumer_offsets``, as Kafka 4.x writes them
group      one group: its members, what they should have (the target) and what they have
assignors  which member should have what: ``uniform`` and ``range``
reconcile  the steps of one member from what it has to what it should have
members    decides heartbeats, leaving, silence
views      groups as operators see them
"""
