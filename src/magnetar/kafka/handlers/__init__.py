"""The table of contents: every API that is served, in which versions, for whom, and where its messages name topics.

``docs/how-to-add-an-api.md`` tells how a line comes here.
"""

from __future__ import annotations

from magnetar.kafka.route import NO_TOPICS, Guard, Route, names, versions
from magnetar.wire.kafka.messages import ApiKey

ROUTES = (
    Route(
        ApiKey.PRODUCE, versions(3, 13), guard=Guard.TOPICS, names=names("topic_data.name", "responses.name")
    ),
    Route(
        ApiKey.FETCH,
        versions(4, 18),
        guard=Guard.OPEN,
        names=names("topics.topic forgotten_topics_data.topic", "responses.topic"),
        asks=True,
    ),
    Route(ApiKey.LIST_OFFSETS, versions(1, 11), guard=Guard.TOPICS, names=names("topics.name"), asks=True),
    Route(ApiKey.METADATA, versions(0, 13), guard=Guard.TOPICS, names=names("topics.name"), asks=True),
    Route(ApiKey.OFFSET_COMMIT, versions(2, 10), guard=Guard.GROUPS, names=names("topics.name")),
    Route(
        ApiKey.OFFSET_FETCH,
        versions(1, 10),
        guard=Guard.GROUPS,
        names=names("topics.name groups.topics.name"),
        asks=True,
    ),
    Route(ApiKey.FIND_COORDINATOR, versions(0, 6), guard=Guard.GROUPS, names=NO_TOPICS, asks=True),
    Route(ApiKey.JOIN_GROUP, versions(0, 9), guard=Guard.GROUPS, names=NO_TOPICS),
    Route(ApiKey.HEARTBEAT, versions(0, 4), guard=Guard.GROUPS, names=NO_TOPICS),
    Route(ApiKey.LEAVE_GROUP, versions(0, 5), guard=Guard.GROUPS, names=NO_TOPICS),
    Route(ApiKey.SYNC_GROUP, versions(0, 5), guard=Guard.GROUPS, names=NO_TOPICS),
    Route(ApiKey.DESCRIBE_GROUPS, versions(0, 6), guard=Guard.GROUPS, names=NO_TOPICS, asks=True),
    Route(ApiKey.LIST_GROUPS, versions(0, 5), guard=Guard.GROUPS, names=NO_TOPICS, asks=True),
    Route(ApiKey.SASL_HANDSHAKE, versions(0, 1), guard=Guard.OPEN, names=NO_TOPICS),
    Route(ApiKey.API_VERSIONS, versions(0, 5), guard=Guard.OPEN, names=NO_TOPICS, asks=True),
    Route(ApiKey.CREATE_TOPICS, versions(2, 7), guard=Guard.TOPICS, names=names("topics.name")),
    Route(
        ApiKey.DELETE_TOPICS,
        versions(1, 6),
        guard=Guard.TOPICS,
        names=names("topics.name topic_names", "responses.name"),
    ),
    Route(ApiKey.DELETE_RECORDS, versions(0, 2), guard=Guard.TOPICS, names=names("topics.name")),
    Route(ApiKey.INIT_PRODUCER_ID, versions(0, 5), guard=Guard.TRANSACTIONS, names=NO_TOPICS),
    Route(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        versions(2, 4),
        guard=Guard.TOPICS,
        names=names("topics.topic"),
        asks=True,
    ),
    Route(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        versions(0, 5),
        guard=Guard.TRANSACTIONS,
        names=names(
            "v3_and_below_topics.name transactions.topics.name",
            "results_by_topic_v3_and_below.name results_by_transaction.topic_results.name",
        ),
    ),
    Route(ApiKey.ADD_OFFSETS_TO_TXN, versions(0, 4), guard=Guard.TRANSACTIONS, names=NO_TOPICS),
    Route(ApiKey.END_TXN, versions(0, 5), guard=Guard.TRANSACTIONS, names=NO_TOPICS),
    Route(
        ApiKey.WRITE_TXN_MARKERS,
        versions(1, 2),
        guard=Guard.TRANSACTIONS,
        names=names("markers.topics.name"),
    ),
    Route(ApiKey.TXN_OFFSET_COMMIT, versions(0, 6), guard=Guard.TRANSACTIONS, names=names("topics.name")),
    Route(ApiKey.DESCRIBE_ACLS, versions(1, 3), guard=Guard.CLUSTER, names=NO_TOPICS, asks=True),
    Route(ApiKey.CREATE_ACLS, versions(1, 3), guard=Guard.CLUSTER, names=NO_TOPICS),
    Route(ApiKey.DELETE_ACLS, versions(1, 3), guard=Guard.CLUSTER, names=NO_TOPICS),
    Route(
        ApiKey.DESCRIBE_CONFIGS,
        versions(1, 4),
        guard=Guard.CLUSTER,
        names=names("resources.resource_name", "results.resource_name"),
        asks=True,
    ),
    Route(
        ApiKey.ALTER_CONFIGS,
        versions(0, 2),
        guard=Guard.CLUSTER,
        names=names("resources.resource_name", "responses.resource_name"),
    ),
    Route(
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        versions(1, 2),
        guard=Guard.OWN,
        names=names("dirs.topics.name", "results.topic_name"),
    ),
    Route(
        ApiKey.DESCRIBE_LOG_DIRS,
        versions(1, 5),
        guard=Guard.CLUSTER,
        names=names("topics.topic", "results.topics.name"),
        asks=True,
    ),
    Route(ApiKey.SASL_AUTHENTICATE, versions(0, 2), guard=Guard.OPEN, names=NO_TOPICS),
    Route(
        ApiKey.CREATE_PARTITIONS,
        versions(0, 3),
        guard=Guard.TOPICS,
        names=names("topics.name", "results.name"),
    ),
    Route(ApiKey.DELETE_GROUPS, versions(0, 3), guard=Guard.GROUPS, names=NO_TOPICS),
    Route(
        ApiKey.ELECT_LEADERS,
        versions(0, 2),
        guard=Guard.OWN,
        names=names("topic_partitions.topic", "replica_election_results.topic"),
    ),
    Route(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        versions(0, 1),
        guard=Guard.CLUSTER,
        names=names("resources.resource_name", "responses.resource_name"),
    ),
    Route(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        versions(0, 1),
        guard=Guard.CLUSTER,
        names=names("topics.name", "responses.name"),
    ),
    Route(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        versions(0, 0),
        guard=Guard.CLUSTER,
        names=names("topics.name"),
        asks=True,
    ),
    Route(ApiKey.OFFSET_DELETE, versions(0, 0), guard=Guard.GROUPS, names=names("topics.name")),
    Route(ApiKey.CREATE_DELEGATION_TOKEN, versions(1, 3), guard=Guard.OPEN, names=NO_TOPICS),
    Route(ApiKey.RENEW_DELEGATION_TOKEN, versions(1, 2), guard=Guard.OPEN, names=NO_TOPICS),
    Route(ApiKey.EXPIRE_DELEGATION_TOKEN, versions(1, 2), guard=Guard.OPEN, names=NO_TOPICS),
    Route(ApiKey.DESCRIBE_DELEGATION_TOKEN, versions(1, 3), guard=Guard.OPEN, names=NO_TOPICS, asks=True),
    Route(ApiKey.DESCRIBE_CLIENT_QUOTAS, versions(0, 1), guard=Guard.OWN, names=NO_TOPICS, asks=True),
    Route(ApiKey.ALTER_CLIENT_QUOTAS, versions(0, 1), guard=Guard.OWN, names=NO_TOPICS),
    Route(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        versions(0, 0),
        guard=Guard.CLUSTER,
        names=NO_TOPICS,
        asks=True,
    ),
    Route(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions(0, 0), guard=Guard.CLUSTER, names=NO_TOPICS),
    Route(
        ApiKey.DESCRIBE_QUORUM, versions(0, 2), guard=Guard.OWN, names=names("topics.topic_name"), asks=True
    ),
    Route(ApiKey.UPDATE_FEATURES, versions(0, 2), guard=Guard.OWN, names=NO_TOPICS),
    Route(ApiKey.DESCRIBE_CLUSTER, versions(0, 2), guard=Guard.CLUSTER, names=NO_TOPICS, asks=True),
    Route(
        ApiKey.DESCRIBE_PRODUCERS, versions(0, 0), guard=Guard.TOPICS, names=names("topics.name"), asks=True
    ),
    Route(
        ApiKey.DESCRIBE_TRANSACTIONS,
        versions(0, 0),
        guard=Guard.TRANSACTIONS,
        names=names("", "transaction_states.topics.topic"),
        asks=True,
    ),
    Route(ApiKey.LIST_TRANSACTIONS, versions(0, 2), guard=Guard.TRANSACTIONS, names=NO_TOPICS, asks=True),
    Route(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        versions(0, 1),
        guard=Guard.GROUPS,
        names=names("subscribed_topic_names", ""),
    ),
    Route(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        versions(0, 1),
        guard=Guard.GROUPS,
        names=names(
            "",
            "groups.members.assignment.topic_partitions.topic_name "
            "groups.members.target_assignment.topic_partitions.topic_name "
            "groups.members.subscribed_topic_names",
        ),
        asks=True,
    ),
    Route(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions(0, 0), guard=Guard.OPEN, names=NO_TOPICS),
    Route(ApiKey.PUSH_TELEMETRY, versions(0, 0), guard=Guard.OPEN, names=NO_TOPICS),
    Route(
        ApiKey.LIST_CONFIG_RESOURCES,
        versions(0, 1),
        guard=Guard.CLUSTER,
        names=names("", "config_resources.resource_name"),
        asks=True,
    ),
    Route(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        versions(0, 0),
        guard=Guard.TOPICS,
        names=names("topics.name cursor.topic_name", "topics.name next_cursor.topic_name"),
        asks=True,
    ),
    Route(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        versions(1, 1),
        guard=Guard.SHARES,
        names=names("subscribed_topic_names", ""),
    ),
    Route(
        ApiKey.SHARE_GROUP_DESCRIBE,
        versions(1, 1),
        guard=Guard.SHARES,
        names=names(
            "",
            "groups.members.assignment.topic_partitions.topic_name groups.members.subscribed_topic_names",
        ),
        asks=True,
    ),
    Route(ApiKey.SHARE_FETCH, versions(1, 2), guard=Guard.SHARES, names=NO_TOPICS),
    Route(ApiKey.SHARE_ACKNOWLEDGE, versions(1, 2), guard=Guard.SHARES, names=NO_TOPICS),
    Route(ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions(0, 0), guard=Guard.SHARES, names=NO_TOPICS),
    Route(ApiKey.READ_SHARE_GROUP_STATE, versions(0, 0), guard=Guard.SHARES, names=NO_TOPICS),
    Route(ApiKey.WRITE_SHARE_GROUP_STATE, versions(0, 1), guard=Guard.SHARES, names=NO_TOPICS),
    Route(ApiKey.DELETE_SHARE_GROUP_STATE, versions(0, 0), guard=Guard.SHARES, names=NO_TOPICS),
    Route(
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        versions(0, 1),
        guard=Guard.SHARES,
        names=NO_TOPICS,
        asks=True,
    ),
    Route(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        versions(0, 1),
        guard=Guard.SHARES,
        names=names("groups.topics.topic_name"),
        asks=True,
    ),
    Route(
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        versions(0, 0),
        guard=Guard.SHARES,
        names=names("topics.topic_name", "responses.topic_name"),
    ),
    Route(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
        versions(0, 0),
        guard=Guard.SHARES,
        names=names("topics.topic_name", "responses.topic_name"),
    ),
    Route(
        ApiKey.STREAMS_GROUP_HEARTBEAT,
        versions(0, 1),
        guard=Guard.OWN,
        names=names(
            "topology.subtopologies.source_topics topology.subtopologies.state_changelog_topics.name "
            "topology.subtopologies.repartition_sink_topics topology.subtopologies.repartition_source_topics.name",
            "partitions_by_user_endpoint.active_partitions.topic "
            "partitions_by_user_endpoint.standby_partitions.topic",
        ),
    ),
    Route(
        ApiKey.STREAMS_GROUP_DESCRIBE,
        versions(0, 1),
        guard=Guard.OWN,
        names=names(
            "",
            "groups.topology.subtopologies.source_topics "
            "groups.topology.subtopologies.repartition_sink_topics "
            "groups.topology.subtopologies.state_changelog_topics.name "
            "groups.topology.subtopologies.repartition_source_topics.name "
            "groups.topology_description.subtopologies.nodes.source_topics "
            "groups.topology_description.subtopologies.nodes.sink_topic "
            "groups.topology_description.global_stores.source.source_topics "
            "groups.topology_description.global_stores.source.sink_topic "
            "groups.topology_description.global_stores.processor.source_topics "
            "groups.topology_description.global_stores.processor.sink_topic",
        ),
        asks=True,
    ),
)
ROUTE_BY_KEY: dict[int, Route] = {route.api_key: route for route in ROUTES}
