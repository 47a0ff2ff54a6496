"""Partitions as Kafka means them: a managed ledger, its producers' states, and who waits for records."""
