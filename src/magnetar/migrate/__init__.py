"""Topics that move here: from Kafka clusters, Pulsar clusters, KoP, and from before the continuous index.

- `from_kafka`, `from_kafka_groups`: topics of a Kafka cluster copied while it is in use: same offsets, configurations,
  groups' offsets, ACLs.
- `from_pulsar*`, `takeover`: a Pulsar cluster that is served in place, and the way back. `pulsar_*` reads what
  Pulsar's brokers keep in ledgers and system topics, `kop_groups` what KoP kept.
- `migrate`, `migrate_*`: topics whose offsets are packed ledger and entry ids (KoP before 2.8) get a continuous index.

Everything is a function from a place to a value; the command line renders it. What is changed is noted before, so that
a migration that was interrupted goes on or is undone.

May import: `doctor`, `admin`, the protocol rooms, and below.
"""
