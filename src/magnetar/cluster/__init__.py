"""Which broker serves which topics, and how brokers send requests to each other.

- `ownership`: the port: a bundle of topics has one owner, in an epoch. A broker without a cluster owns everything.
- `cluster_ownership`: owners in ZooKeeper, by ephemeral nodes at Pulsar's paths; its docstring has the table of nodes.
- `bundle_epochs`, `bundle_splits`: epochs only grow; where a bundle is cut.
- `even_placement`, `load_placement`, `load_shedding`: which broker gets a bundle, evenly by count or by load, and
  which bundles move away from a busy broker. Pure.
- `cluster_figures`: the session with ZooKeeper, bundles, epochs, moves and bookies, for ``/metrics``.
- `peers`, `between_brokers`, `asking_owners`: requests between the workers of one directory, and between brokers.

The path of an unload in a cluster: a node below ``/magnetar/bundle-unloads`` asks the owner (which needs none if it is
asked itself). The owner stops owning the bundle, awaits each of `on_lost`, which close what is open in it, and deletes
its owner node. The broker that the bundle is meant for sees that, and takes it with the next epoch.

May import: `figures`, `serving` (addresses), `topics`, `settings`, `base` and below.
"""
