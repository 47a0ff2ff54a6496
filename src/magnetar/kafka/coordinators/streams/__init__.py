"""Groups of the streams protocol (KIP-1071): the coordinator knows the topology, and assigns its tasks.

group      one group: its topology, its members, the tasks they should have and have
facts      their records in ``__consumer_offsets``, as Kafka 4.4 writes them
topology   how many partitions each topic of a topology has to have, and what stands against it
assignor   who should have which tasks, and who stands by
reconcile  how one member comes from the tasks it has to those it should have
members    decides heartbeats, leaving, silence
views      groups as operators see them
"""
