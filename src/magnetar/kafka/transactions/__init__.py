"""Transactions: a pure decider over the records of ``__transaction_state``, and what carries its decisions out.

facts        the records, as Kafka writes them
metadata     one transactional id: its producer, its epoch, its transaction
decider      decides all about those of one partition
markers      ends transactions in the partitions that they touched
coordinator  `TransactionCoordinator`, which handlers and operators call

Pulsar's transactions are kept in the same log, decided beside these, and known to Kafka's tools by Pulsar's names:

pulsar_facts        their records
pulsar_decider      decides about them
pulsar_coordinator  `PulsarCoordinator`, which Pulsar's handler calls (`magnetar.coordination.transactions`)
"""
