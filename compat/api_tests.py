"""For each API that is served, the test that proves it; every one is asked in all its versions by two more besides."""

from __future__ import annotations

ALL_VERSIONS = ("tests/hostile/test_requests.py", "tests/security/matrix/test_matrix.py")
"""Ask every API that is served: the first in each version, whole and damaged, the second as each kind of role."""

_TOPICS = "tests/handlers_admin/test_topics.py"
_CONFIGS = "tests/handlers_admin/test_configs.py"
_GROUPS = "tests/coordinators/test_conversation.py"
_CLIENTS = "tests/end_to_end/test_clients.py"
_STREAMS = "tests/end_to_end/test_streams_groups.py"
_CONSUMERS = "tests/end_to_end/test_consumer_protocol.py"
_SHARE_ANSWERS = "tests/shares/test_answers.py"
_SHARE_CONSUMERS = "tests/shares/test_share_consumers.py"
_TRANSACTIONS = "tests/transactions/test_clients.py"
_OPERATORS = "tests/transactions/test_operators.py"
_TOKENS = "tests/security/test_delegation_tokens.py"
_SINGLE = "tests/handlers_admin/test_single_levels.py"
_REPLICAS = "tests/handlers_admin/test_leaders_and_replicas.py"

TESTS = {
    "Produce": _CLIENTS,
    "Fetch": "tests/fetch/test_sessions.py",
    "ListOffsets": "tests/visibility/test_kafka.py",
    "Metadata": _TOPICS,
    "OffsetCommit": _GROUPS,
    "OffsetFetch": _GROUPS,
    "FindCoordinator": _CLIENTS,
    "JoinGroup": _GROUPS,
    "Heartbeat": _GROUPS,
    "LeaveGroup": _GROUPS,
    "SyncGroup": _GROUPS,
    "DescribeGroups": _GROUPS,
    "ListGroups": _GROUPS,
    "SaslHandshake": "tests/security/test_sasl.py",
    "ApiVersions": "tests/handlers_admin/test_features.py",
    "CreateTopics": _TOPICS,
    "DeleteTopics": _TOPICS,
    "DeleteRecords": "tests/visibility/test_kafka.py",
    "InitProducerId": _TRANSACTIONS,
    "OffsetForLeaderEpoch": "tests/visibility/test_kafka.py",
    "AddPartitionsToTxn": _TRANSACTIONS,
    "AddOffsetsToTxn": _TRANSACTIONS,
    "EndTxn": "tests/transactions/test_version_2.py",
    "WriteTxnMarkers": _OPERATORS,
    "TxnOffsetCommit": _TRANSACTIONS,
    "DescribeAcls": "tests/security/test_acls.py",
    "CreateAcls": "tests/security/test_acls.py",
    "DeleteAcls": "tests/security/test_acls.py",
    "DescribeConfigs": _CONFIGS,
    "AlterConfigs": _CONFIGS,
    "AlterReplicaLogDirs": _SINGLE,
    "DescribeLogDirs": _TOPICS,
    "SaslAuthenticate": "tests/security/test_sasl.py",
    "CreatePartitions": _TOPICS,
    "CreateDelegationToken": _TOKENS,
    "RenewDelegationToken": _TOKENS,
    "ExpireDelegationToken": _TOKENS,
    "DescribeDelegationToken": _TOKENS,
    "DeleteGroups": _GROUPS,
    "ElectLeaders": _REPLICAS,
    "IncrementalAlterConfigs": _CONFIGS,
    "AlterPartitionReassignments": _REPLICAS,
    "ListPartitionReassignments": _REPLICAS,
    "OffsetDelete": _GROUPS,
    "DescribeClientQuotas": "tests/quotas/test_store.py",
    "AlterClientQuotas": "tests/quotas/test_store.py",
    "DescribeUserScramCredentials": "tests/security/test_scram.py",
    "AlterUserScramCredentials": "tests/security/test_scram.py",
    "DescribeQuorum": _SINGLE,
    "UpdateFeatures": _SINGLE,
    "DescribeCluster": _TOPICS,
    "DescribeProducers": "tests/end_to_end/test_tools_questions.py",
    "DescribeTransactions": _OPERATORS,
    "ListTransactions": _OPERATORS,
    "ConsumerGroupHeartbeat": _CONSUMERS,
    "ConsumerGroupDescribe": _CONSUMERS,
    "GetTelemetrySubscriptions": "tests/client_metrics/test_clients.py",
    "PushTelemetry": "tests/client_metrics/test_clients.py",
    "ListConfigResources": _CONFIGS,
    "DescribeTopicPartitions": _TOPICS,
    "ShareGroupHeartbeat": _SHARE_CONSUMERS,
    "ShareGroupDescribe": _SHARE_ANSWERS,
    "ShareFetch": _SHARE_CONSUMERS,
    "ShareAcknowledge": _SHARE_CONSUMERS,
    "InitializeShareGroupState": _SHARE_ANSWERS,
    "ReadShareGroupState": _SHARE_ANSWERS,
    "WriteShareGroupState": _SHARE_ANSWERS,
    "DeleteShareGroupState": _SHARE_ANSWERS,
    "ReadShareGroupStateSummary": _SHARE_ANSWERS,
    "DescribeShareGroupOffsets": _SHARE_ANSWERS,
    "AlterShareGroupOffsets": _SHARE_ANSWERS,
    "DeleteShareGroupOffsets": _SHARE_ANSWERS,
    "StreamsGroupHeartbeat": _STREAMS,
    "StreamsGroupDescribe": _STREAMS,
}
