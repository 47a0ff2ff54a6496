"""Groups of the streams protocol (KIP-1071): the coordinator knows the topology, and assigns its tasks.

group      one group: its topology, its members, the tasks they should have and have
facts      their records in ``__consumer_offsets``, as Kafka 4.4 writes them
topology   how many partitions each topic of a topology has to have, and what is wrong with it
assignor   which member should have which tasks, and which are on standby
reconcile  the steps of one member from the tasks it has to those it should have
members    decides heartbeats, leaving, silence
views      groups as operators see them
"""
