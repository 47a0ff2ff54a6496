"""What every foreign client is asked to do. A client's program reports each of these by name, or leaves it out when
the client has no such thing; then the table shows a dash."""

from __future__ import annotations

CHECKS: dict[str, str] = {
    "produce_consume": "keyed records over four partitions, read back complete and in order per key",
    "headers": "headers: repeated names, empty, binary and null values, in order",
    "nulls": "null keys, null values (tombstones), empty keys and values",
    "codec_none": "uncompressed batches",
    "codec_gzip": "gzip batches",
    "codec_snappy": "snappy batches",
    "codec_lz4": "lz4 batches",
    "codec_zstd": "zstd batches",
    "timestamps": "the timestamps that the producer gave",
    "large_message": "one record of 900,000 bytes",
    "acks_0": "acks=0",
    "acks_1": "acks=1",
    "acks_all": "acks=all",
    "idempotent": "an idempotent producer: no gaps, no doubles",
    "group_eager": "two members share a group's partitions; one leaves; eager rebalancing",
    "group_cooperative": "the same with cooperative rebalancing: nobody loses what it keeps",
    "group_static": "a static member comes back without a rebalance",
    "commit_resume": "commit, close, and resume at the committed offset",
    "seek_ends": "seek to the earliest and latest offset",
    "seek_timestamp": "look up offsets by timestamp",
    "topics": "create, list, describe and delete topics",
    "partitions": "add partitions to a topic",
    "configs_describe": "describe a topic's and the broker's configuration",
    "configs_alter": "alter a topic's configuration and see it",
    "groups": "list and describe groups",
    "groups_delete": "delete a group's offsets and the group",
    "delete_records": "delete records below an offset",
    "cluster": "describe the cluster",
    "log_dirs": "describe the log directories",
    "errors": "an unknown topic, an existing topic and a bad partition count give Kafka's own errors",
    "perf": "the client's own performance tools run and report",
}
