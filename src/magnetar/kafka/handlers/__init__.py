"""The table of contents: every API that is served, in which versions, for whom, where a proxy sends it, and what its
messages name.

``docs/how-to-add-an-api.md`` tells how a line comes here.
"""

from __future__ import annotations

from magnetar.auth import Right
from magnetar.kafka.rights import (
    ALTERS_TOPIC,
    CREATES_TOPIC,
    DELETES_GROUP,
    DELETES_TOPIC,
    READS_TOPIC,
    READS_TOPIC_IN_GROUP,
    SEES_GROUP,
    SEES_TOPIC,
    SEES_TRANSACTIONS_OF,
    USES_GROUP,
    WRITES_AS,
    Need,
    Rights,
    cluster,
    group,
)
from magnetar.kafka.route import NO_TOPICS, Guard, Route, names, versions
from magnetar.kafka.rows import TRANSACTION, Key, KeyRows, PartitionRows, Rows, Way, alike
from magnetar.wire.kafka.messages import ApiKey

_GROUP, _TRANSACTION = Key("group_id"), Key("transactional_id", TRANSACTION)
_PARTITIONS = alike(PartitionRows("topics", "name", "", "partitions", "partition_index"))
_TOPICS_BY_ID = alike(PartitionRows("topics", "name", "topic_id", "partitions", "partition_index"))
_SHARES = Rows(
    PartitionRows("topics", "", "topic_id", "partitions", "partition_index"),
    PartitionRows("responses", "", "topic_id", "partitions", "partition_index"),
)
_SHARE_STATES = Rows(
    PartitionRows("topics", "", "topic_id", "partitions", "partition"),
    PartitionRows("results", "", "topic_id", "partitions", "partition"),
)
_COMMITS = Rights((Need(USES_GROUP, "group_id"),), READS_TOPIC_IN_GROUP, ("group_id",))
_SUBSCRIBES = Rights(
    (Need(USES_GROUP, "group_id"), Need(SEES_TOPIC, "subscribed_topic_names", each=True)), says=True
)
_DESCRIBED = "The group has described topic(s) that the client is not authorized to describe."

# fmt: off
ROUTES = (
    # librdkafka before 2.11 compresses only where versions 0 to 2 are listed, so Kafka lists them too (KAFKA-18659).
    Route(ApiKey.PRODUCE, versions(3, 13), rights=Guard.TOPICS, way=Way.LEADERS, is_eager=True,
        rows=Rows(
            PartitionRows("topic_data", "name", "topic_id", "partition_data", "index"),
            PartitionRows("responses", "name", "topic_id", "partition_responses", "index"),
        ),
        names=names("topic_data.name", "responses.name"), listed_from=0),
    Route(ApiKey.FETCH, versions(4, 18), rights=Guard.OPEN, way=Way.LEADERS, is_eager=True,
        rows=Rows(
            PartitionRows("topics", "topic", "topic_id", "partitions", "partition"),
            PartitionRows("responses", "topic", "topic_id", "partitions", "partition_index"),
        ),
        names=names("topics.topic forgotten_topics_data.topic", "responses.topic"), asks=True),
    Route(ApiKey.LIST_OFFSETS, versions(1, 11), rights=Rights(rows=SEES_TOPIC, unless=Right.act_for_cluster),
        way=Way.LEADERS, rows=_PARTITIONS, names=names("topics.name"), asks=True),
    Route(ApiKey.METADATA, versions(0, 13), rights=Guard.TOPICS, way=Way.ANY, names=names("topics.name"), asks=True),
    Route(ApiKey.OFFSET_COMMIT, versions(2, 10), rights=_COMMITS, way=Way.COORDINATOR, key=_GROUP,
        rows=_TOPICS_BY_ID, names=names("topics.name")),
    Route(ApiKey.OFFSET_FETCH, versions(1, 10), rights=Guard.GROUPS, way=Way.COORDINATORS,
        key=Key("group_id", rows_from=8), rows=alike(KeyRows("groups", "group_id")),
        names=names("topics.name groups.topics.name"), asks=True),
    Route(ApiKey.FIND_COORDINATOR, versions(0, 6), rights=Guard.GROUPS, way=Way.ANY, names=NO_TOPICS, asks=True),
    Route(ApiKey.JOIN_GROUP, versions(0, 9), rights=Guard.GROUPS, way=Way.COORDINATOR, key=_GROUP, names=NO_TOPICS),
    Route(ApiKey.HEARTBEAT, versions(0, 4), rights=group(), way=Way.COORDINATOR, key=_GROUP, names=NO_TOPICS),
    Route(ApiKey.LEAVE_GROUP, versions(0, 5), rights=group(), way=Way.COORDINATOR, key=_GROUP, names=NO_TOPICS),
    Route(ApiKey.SYNC_GROUP, versions(0, 5), rights=group(), way=Way.COORDINATOR, key=_GROUP, names=NO_TOPICS),
    Route(ApiKey.DESCRIBE_GROUPS, versions(0, 6), rights=Rights(rows=SEES_GROUP, operations="groups"),
        way=Way.COORDINATORS, rows=Rows(KeyRows("groups", ""), KeyRows("groups", "group_id")), names=NO_TOPICS,
        asks=True),
    Route(ApiKey.LIST_GROUPS, versions(0, 5), rights=Rights(shows=SEES_GROUP, unless=Right.describe_cluster),
        way=Way.EVERY, rows=Rows(None, KeyRows("groups", "group_id")), names=NO_TOPICS, asks=True),
    Route(ApiKey.SASL_HANDSHAKE, versions(0, 1), rights=Guard.OPEN, way=Way.HERE, names=NO_TOPICS),
    Route(ApiKey.API_VERSIONS, versions(0, 5), rights=Guard.OPEN, way=Way.HERE, names=NO_TOPICS, asks=True),
    Route(ApiKey.CREATE_TOPICS, versions(2, 7),
        rights=Rights(rows=CREATES_TOPIC, says=True, instead=(("configs", ()),)), way=Way.CONTROLLER,
        rows=alike(KeyRows("topics", "name")), names=names("topics.name")),
    Route(ApiKey.DELETE_TOPICS, versions(1, 6), rights=Guard.TOPICS, way=Way.CONTROLLER,
        names=names("topics.name topic_names", "responses.name")),
    Route(ApiKey.DELETE_RECORDS, versions(0, 2),
        rights=Rights(rows=DELETES_TOPIC, instead=(("low_watermark", -1),)), way=Way.LEADERS, rows=_PARTITIONS,
        names=names("topics.name")),
    Route(ApiKey.INIT_PRODUCER_ID, versions(0, 5), rights=Guard.TRANSACTIONS, way=Way.COORDINATOR,
        key=_TRANSACTION, names=NO_TOPICS),
    Route(ApiKey.OFFSET_FOR_LEADER_EPOCH, versions(2, 4),
        rights=Rights(rows=SEES_TOPIC, unless=Right.act_for_cluster), way=Way.LEADERS,
        rows=alike(PartitionRows("topics", "topic", "", "partitions", "partition")), names=names("topics.topic"),
        asks=True),
    Route(ApiKey.ADD_PARTITIONS_TO_TXN, versions(0, 5), rights=Guard.TRANSACTIONS, way=Way.COORDINATORS,
        key=Key("v3_and_below_transactional_id", TRANSACTION, rows_from=4),
        rows=Rows(
            KeyRows("transactions", "transactional_id"), KeyRows("results_by_transaction", "transactional_id"),
        ),
        names=names(
            "v3_and_below_topics.name transactions.topics.name",
            "results_by_topic_v3_and_below.name results_by_transaction.topic_results.name",
        )),
    Route(ApiKey.ADD_OFFSETS_TO_TXN, versions(0, 4),
        rights=Rights((Need(WRITES_AS, "transactional_id"), Need(USES_GROUP, "group_id"))), way=Way.COORDINATOR,
        key=_TRANSACTION, names=NO_TOPICS),
    Route(ApiKey.END_TXN, versions(0, 5), rights=Rights((Need(WRITES_AS, "transactional_id"),)),
        way=Way.COORDINATOR, key=_TRANSACTION, names=NO_TOPICS),
    Route(ApiKey.WRITE_TXN_MARKERS, versions(1, 2), rights=Guard.TRANSACTIONS, way=Way.LEADERS,
        rows=Rows(
            PartitionRows("markers.topics", "name", "", "partition_indexes", ""),
            KeyRows("markers", "producer_id", "topics"),
        ),
        names=names("markers.topics.name")),
    Route(ApiKey.TXN_OFFSET_COMMIT, versions(0, 6),
        rights=Rights((Need(WRITES_AS, "transactional_id"), *_COMMITS.needs), READS_TOPIC_IN_GROUP, ("group_id",)),
        way=Way.COORDINATOR, key=_GROUP, rows=_TOPICS_BY_ID, names=names("topics.name")),
    Route(ApiKey.DESCRIBE_ACLS, versions(1, 3), rights=cluster(Right.describe_cluster, says=True), way=Way.ANY,
        names=NO_TOPICS, asks=True),
    Route(ApiKey.CREATE_ACLS, versions(1, 3), rights=cluster(Right.alter_cluster, says=True), way=Way.CONTROLLER,
        rows=Rows(KeyRows("creations", ""), KeyRows("results", "")), names=NO_TOPICS),
    Route(ApiKey.DELETE_ACLS, versions(1, 3), rights=cluster(Right.alter_cluster, says=True), way=Way.CONTROLLER,
        rows=Rows(KeyRows("filters", ""), KeyRows("filter_results", "")), names=NO_TOPICS),
    Route(ApiKey.DESCRIBE_CONFIGS, versions(1, 4), rights=Guard.CLUSTER, way=Way.ANY,
        names=names("resources.resource_name", "results.resource_name"), asks=True),
    Route(ApiKey.ALTER_CONFIGS, versions(0, 2), rights=Guard.CLUSTER, way=Way.CONTROLLER,
        names=names("resources.resource_name", "responses.resource_name")),
    Route(ApiKey.ALTER_REPLICA_LOG_DIRS, versions(1, 2), rights=Guard.OWN, way=Way.CONTROLLER,
        names=names("dirs.topics.name", "results.topic_name")),
    Route(ApiKey.DESCRIBE_LOG_DIRS, versions(1, 5), rights=cluster(Right.describe_cluster), way=Way.EVERY,
        rows=Rows(None, KeyRows("results", "log_dir", "topics")),
        names=names("topics.topic", "results.topics.name"), asks=True),
    Route(ApiKey.SASL_AUTHENTICATE, versions(0, 2), rights=Guard.OPEN, way=Way.HERE, names=NO_TOPICS),
    Route(ApiKey.CREATE_PARTITIONS, versions(0, 3), rights=Rights(rows=ALTERS_TOPIC, says=True, once=True),
        way=Way.CONTROLLER, rows=Rows(KeyRows("topics", "name"), KeyRows("results", "name")),
        names=names("topics.name", "results.name")),
    Route(ApiKey.DELETE_GROUPS, versions(0, 3), rights=Rights(rows=DELETES_GROUP), way=Way.COORDINATORS,
        rows=Rows(KeyRows("groups_names", ""), KeyRows("results", "group_id")), names=NO_TOPICS),
    Route(ApiKey.ELECT_LEADERS, versions(0, 2), rights=Guard.OWN, way=Way.CONTROLLER,
        names=names("topic_partitions.topic", "replica_election_results.topic")),
    Route(ApiKey.INCREMENTAL_ALTER_CONFIGS, versions(0, 1), rights=Guard.CLUSTER, way=Way.CONTROLLER,
        names=names("resources.resource_name", "responses.resource_name")),
    Route(ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions(0, 1), rights=cluster(Right.alter_cluster, says=True),
        way=Way.CONTROLLER, names=names("topics.name", "responses.name")),
    Route(ApiKey.LIST_PARTITION_REASSIGNMENTS, versions(0, 0), rights=cluster(Right.describe_cluster, says=True),
        way=Way.CONTROLLER, names=names("topics.name"), asks=True),
    Route(ApiKey.OFFSET_DELETE, versions(0, 0),
        rights=Rights((Need(DELETES_GROUP, "group_id"),), READS_TOPIC_IN_GROUP, ("group_id",)),
        way=Way.COORDINATOR, key=_GROUP, rows=_PARTITIONS, names=names("topics.name")),
    Route(ApiKey.CREATE_DELEGATION_TOKEN, versions(1, 3), rights=Guard.OPEN, way=Way.CONTROLLER, names=NO_TOPICS),
    Route(ApiKey.RENEW_DELEGATION_TOKEN, versions(1, 2), rights=Guard.OPEN, way=Way.CONTROLLER, names=NO_TOPICS),
    Route(ApiKey.EXPIRE_DELEGATION_TOKEN, versions(1, 2), rights=Guard.OPEN, way=Way.CONTROLLER, names=NO_TOPICS),
    Route(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions(1, 3), rights=Guard.OPEN, way=Way.CONTROLLER,
        names=NO_TOPICS, asks=True),
    Route(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions(0, 1), rights=Guard.OWN, way=Way.ANY, names=NO_TOPICS, asks=True),
    Route(ApiKey.ALTER_CLIENT_QUOTAS, versions(0, 1), rights=Guard.OWN, way=Way.CONTROLLER, names=NO_TOPICS),
    Route(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions(0, 0),
        rights=cluster(Right.describe_cluster, says=True, refuses_rows=True), way=Way.CONTROLLER,
        rows=Rows(KeyRows("users", "name"), KeyRows("results", "user")), names=NO_TOPICS, asks=True),
    Route(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions(0, 0), rights=Guard.CLUSTER, way=Way.CONTROLLER,
        names=NO_TOPICS),
    Route(ApiKey.DESCRIBE_QUORUM, versions(0, 2), rights=cluster(Right.describe_cluster, says=True),
        way=Way.NOT_PASSED, names=names("topics.topic_name"), asks=True),
    Route(ApiKey.UPDATE_FEATURES, versions(0, 2), rights=cluster(Right.alter_cluster, says=True),
        way=Way.CONTROLLER, names=NO_TOPICS),
    Route(ApiKey.DESCRIBE_CLUSTER, versions(0, 2), rights=Rights(operations="cluster"), way=Way.ANY,
        names=NO_TOPICS, asks=True),
    Route(ApiKey.DESCRIBE_PRODUCERS, versions(0, 0), rights=Rights(rows=READS_TOPIC, says=True, once=True),
        way=Way.LEADERS,
        rows=Rows(
            PartitionRows("topics", "name", "", "partition_indexes", ""),
            PartitionRows("topics", "name", "", "partitions", "partition_index"),
        ),
        names=names("topics.name"), asks=True),
    Route(ApiKey.DESCRIBE_TRANSACTIONS, versions(0, 0), rights=Guard.TRANSACTIONS, way=Way.COORDINATORS,
        key=Key(kind=TRANSACTION),
        rows=Rows(KeyRows("transactional_ids", ""), KeyRows("transaction_states", "transactional_id")),
        names=names("", "transaction_states.topics.topic"), asks=True),
    Route(ApiKey.LIST_TRANSACTIONS, versions(0, 2),
        rights=Rights(shows=SEES_TRANSACTIONS_OF, unless=Right.operate), way=Way.EVERY,
        rows=Rows(None, KeyRows("transaction_states", "transactional_id")), names=NO_TOPICS, asks=True),
    Route(ApiKey.CONSUMER_GROUP_HEARTBEAT, versions(0, 1), rights=_SUBSCRIBES, way=Way.COORDINATOR, key=_GROUP,
        names=names("subscribed_topic_names", "")),
    Route(ApiKey.CONSUMER_GROUP_DESCRIBE, versions(0, 1),
        rights=Rights(
            rows=SEES_GROUP, says=True, operations="groups",
            sees=(
                "members.assignment.topic_partitions.topic_name",
                "members.target_assignment.topic_partitions.topic_name",
                "members.subscribed_topic_names",
            ),
            hidden=_DESCRIBED,
        ),
        way=Way.COORDINATORS, rows=Rows(KeyRows("group_ids", ""), KeyRows("groups", "group_id")),
        names=names(
            "",
            "groups.members.assignment.topic_partitions.topic_name "
            "groups.members.target_assignment.topic_partitions.topic_name groups.members.subscribed_topic_names",
        ),
        asks=True),
    Route(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions(0, 0), rights=Guard.OPEN, way=Way.ANY, names=NO_TOPICS),
    Route(ApiKey.PUSH_TELEMETRY, versions(0, 0), rights=Guard.OPEN, way=Way.ANY, names=NO_TOPICS),
    Route(ApiKey.LIST_CONFIG_RESOURCES, versions(0, 1), rights=cluster(Right.see_cluster_configs), way=Way.ANY,
        names=names("", "config_resources.resource_name"), asks=True),
    Route(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions(0, 0),
        rights=Rights(rows=SEES_TOPIC, empty_is_all=True, operations="topics"), way=Way.ANY,
        rows=alike(KeyRows("topics", "name")),
        names=names("topics.name cursor.topic_name", "topics.name next_cursor.topic_name"), asks=True),
    Route(ApiKey.SHARE_GROUP_HEARTBEAT, versions(1, 1), rights=_SUBSCRIBES, way=Way.COORDINATOR, key=_GROUP,
        names=names("subscribed_topic_names", "")),
    Route(ApiKey.SHARE_GROUP_DESCRIBE, versions(1, 1),
        rights=Rights(
            rows=SEES_GROUP, says=True, operations="groups",
            sees=("members.assignment.topic_partitions.topic_name", "members.subscribed_topic_names"),
            hidden=_DESCRIBED,
        ),
        way=Way.COORDINATORS, rows=Rows(KeyRows("group_ids", ""), KeyRows("groups", "group_id")),
        names=names(
            "",
            "groups.members.assignment.topic_partitions.topic_name groups.members.subscribed_topic_names",
        ),
        asks=True),
    Route(ApiKey.SHARE_FETCH, versions(1, 2), rights=Rights((Need(USES_GROUP, "group_id"),), says=True),
        way=Way.LEADERS, rows=_SHARES, names=NO_TOPICS),
    Route(ApiKey.SHARE_ACKNOWLEDGE, versions(1, 2),
        rights=Rights((Need(USES_GROUP, "group_id"),), READS_TOPIC, says=True, unless_failed=True),
        way=Way.LEADERS, rows=_SHARES, names=NO_TOPICS),
    Route(ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions(0, 0), rights=cluster(Right.act_for_cluster),
        way=Way.NOT_PASSED, rows=_SHARE_STATES, names=NO_TOPICS),
    Route(ApiKey.READ_SHARE_GROUP_STATE, versions(0, 0), rights=cluster(Right.act_for_cluster),
        way=Way.NOT_PASSED, rows=_SHARE_STATES, names=NO_TOPICS),
    Route(ApiKey.WRITE_SHARE_GROUP_STATE, versions(0, 1), rights=cluster(Right.act_for_cluster),
        way=Way.NOT_PASSED, rows=_SHARE_STATES, names=NO_TOPICS),
    Route(ApiKey.DELETE_SHARE_GROUP_STATE, versions(0, 0), rights=cluster(Right.act_for_cluster),
        way=Way.NOT_PASSED, rows=_SHARE_STATES, names=NO_TOPICS),
    Route(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions(0, 1), rights=cluster(Right.act_for_cluster),
        way=Way.NOT_PASSED, rows=_SHARE_STATES, names=NO_TOPICS, asks=True),
    Route(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions(0, 1), rights=Guard.SHARES, way=Way.COORDINATORS,
        rows=alike(KeyRows("groups", "group_id")), names=names("groups.topics.topic_name"), asks=True),
    Route(ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions(0, 0),
        rights=Rights((Need(USES_GROUP, "group_id"),), READS_TOPIC, says=True), way=Way.COORDINATOR, key=_GROUP,
        rows=Rows(
            PartitionRows("topics", "topic_name", "", "partitions", "partition_index"),
            PartitionRows("responses", "topic_name", "", "partitions", "partition_index"),
        ),
        names=names("topics.topic_name", "responses.topic_name")),
    Route(ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions(0, 0),
        rights=Rights((Need(DELETES_GROUP, "group_id"),), READS_TOPIC, says=True), way=Way.COORDINATOR,
        key=_GROUP, rows=Rows(KeyRows("topics", "topic_name"), KeyRows("responses", "topic_name")),
        names=names("topics.topic_name", "responses.topic_name")),
    Route(ApiKey.STREAMS_GROUP_HEARTBEAT, versions(0, 1), rights=Guard.OWN, way=Way.COORDINATOR, key=_GROUP,
        names=names(
            "topology.subtopologies.source_topics topology.subtopologies.state_changelog_topics.name "
            "topology.subtopologies.repartition_sink_topics topology.subtopologies.repartition_source_topics.name",
            "partitions_by_user_endpoint.active_partitions.topic "
            "partitions_by_user_endpoint.standby_partitions.topic",
        )),
    Route(ApiKey.STREAMS_GROUP_DESCRIBE, versions(0, 1),
        rights=Rights(
            rows=SEES_GROUP, says=True, operations="groups", instead=(("topology", None),),
            sees=(
                "topology.subtopologies.source_topics",
                "topology.subtopologies.repartition_sink_topics",
                "topology.subtopologies.state_changelog_topics.name",
                "topology.subtopologies.repartition_source_topics.name",
            ),
            hidden="The described group uses topics that the client is not authorized to describe.",
        ),
        way=Way.COORDINATORS, rows=Rows(KeyRows("group_ids", ""), KeyRows("groups", "group_id")),
        names=names(
            "",
            "groups.topology.subtopologies.source_topics groups.topology.subtopologies.repartition_sink_topics "
            "groups.topology.subtopologies.state_changelog_topics.name "
            "groups.topology.subtopologies.repartition_source_topics.name "
            "groups.topology_description.subtopologies.nodes.source_topics "
            "groups.topology_description.subtopologies.nodes.sink_topic "
            "groups.topology_description.global_stores.source.source_topics "
            "groups.topology_description.global_stores.source.sink_topic "
            "groups.topology_description.global_stores.processor.source_topics "
            "groups.topology_description.global_stores.processor.sink_topic",
        ),
        asks=True),
)
# fmt: on
ROUTE_BY_KEY: dict[int, Route] = {route.api_key: route for route in ROUTES}
