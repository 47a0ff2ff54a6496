"""What every foreign client is asked to do. A client's program reports each of these by name, or leaves it out when
the client has no such thing; then the table shows a dash."""

from __future__ import annotations

CHECKS: dict[str, str] = {
    "produce_consume": "20,000 keyed records over twelve partitions, read back complete and in order per key",
    "headers": "headers: repeated names, empty, binary and null values, in order (each as far as the client has it)",
    "nulls": "null keys, null values (tombstones), empty keys and values (each as far as the client has it)",
    "codec_none": "20,000 records in uncompressed batches",
    "codec_gzip": "20,000 records in gzip batches",
    "codec_snappy": "20,000 records in snappy batches",
    "codec_lz4": "20,000 records in lz4 batches",
    "codec_zstd": "20,000 records in zstd batches",
    "timestamps": "the timestamps that the producer gave",
    "large_message": "one record of 900,000 bytes",
    "acks_0": "acks=0: 20,000 records, half in big batches and half one by one, at once, over twelve partitions",
    "acks_1": "acks=1: 20,000 records, half in big batches and half one by one, at once, over twelve partitions",
    "acks_all": "acks=all: 20,000 records, half in big batches and half one by one, at once, over twelve partitions",
    "idempotent": "an idempotent producer, 20,000 records in small batches: no gaps, no doubles",
    # Sarama and kafkajs are not asked: they lose count of their own sequences, on Kafka too. kcat gives up at once.
    "sent_twice": "answers are lost and records sent again by an idempotent producer: each is there once, in order",
    "restart": "the broker is killed: acknowledged records and committed offsets are there, and producers go on",
    "group_eager": "two members share a group's partitions; one leaves; eager rebalancing",
    "group_cooperative": "the same with cooperative rebalancing: nobody loses what it keeps",
    "group_static": "a static member comes back without a rebalance",
    "fenced": "a second member of one instance id fences the first; nobody else changes offsets of a group at work",
    "commit_resume": "commit, close, and resume at the committed offset",
    "seek_ends": "seek to the earliest and latest offset",
    "seek_timestamp": "look up offsets by timestamp",
    "topics": "create, list, describe and delete topics",
    "partitions": "add partitions to a topic",
    "configs_describe": "describe a topic's and the broker's configuration",
    "configs_alter": "alter a topic's configuration and see it",
    "groups": "list and describe groups",
    "groups_delete": "delete a group's offsets and the group (each as far as the client has it)",
    "retention": "what is older, and what is more, than a topic keeps is deleted",
    "delete_records": "delete records below an offset",
    "cluster": "describe the cluster",
    "log_dirs": "describe the log directories",
    "errors": "an unknown topic, an existing topic and a bad partition count give Kafka's own errors",
    "perf": "the client's own performance tools run and report",
}
