"""Which broker serves what, and how brokers ask each other.

- `ownership`: the port: a bundle of topics has one owner, since an epoch. One broker alone owns everything.
- `cluster_ownership`: owners in ZooKeeper, by ephemeral nodes at Pulsar's paths; its docstring has the table of nodes.
- `bundle_epochs`, `bundle_splits`: epochs only grow; where a bundle is cut.
- `even_placement`, `load_placement`, `load_shedding`: which broker gets a bundle while bundles are few, by load, and
  which bundles move away from a busy broker. Pure.
- `cluster_figures`: the session with ZooKeeper, bundles, epochs, moves and bookies, for ``/metrics``.
- `peers`, `between_brokers`, `asking_owners`: questions between the workers of one directory, and between brokers.

May import: `figures`, `serving` (addresses), `topics`, `settings`, `base` and below.
"""
