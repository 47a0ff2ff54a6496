"""Where each API's requests go: the proxy's table of contents. A test holds that each API that brokers serve is here.

What a broker is asked for by rows (partitions, groups, transactional ids) is cut by who has them and its answers are
joined (`magnetar.proxy.kafka.spreading`), Fetch in a way of its own (`magnetar.proxy.kafka.fetching`).
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from magnetar.kafka.handlers import ROUTE_BY_KEY
from magnetar.wire.kafka.messages import ApiKey

GROUP, TRANSACTION = 0, 1
"""Kinds of keys that have coordinators, as FindCoordinator has them."""


class Way(Enum):
    """Which brokers a request goes to."""

    HERE = auto()
    """The proxy answers."""
    ANY = auto()
    """Any one; the same one for all requests of a connection."""
    CONTROLLER = auto()
    """The controller."""
    COORDINATOR = auto()
    """The coordinator of the key that the request names; any broker if it names none."""
    COORDINATORS = auto()
    """The coordinators of the rows' keys."""
    LEADERS = auto()
    """The leaders of the rows' partitions."""
    EVERY = auto()
    """All brokers; the rows of their answers are put together."""


class PartitionRows(NamedTuple):
    """Where a message names partitions: fields of it, of a topic in it, and of a partition ("": numbers alone)."""

    topics: str
    name: str
    topic_id: str
    """Empty where a topic has a name only."""
    partitions: str
    number: str


class KeyRows(NamedTuple):
    """Where a message names keys: its list, and the field of a row ("": keys alone)."""

    rows: str
    key: str
    below: str = ""
    """The list of a row that is put together where several brokers have a row for a key."""


class Api(NamedTuple):
    """One API. ``asked`` and ``answered`` tell where the rows are that go to several brokers."""

    way: Way
    asked: PartitionRows | KeyRows | None = None
    answered: PartitionRows | KeyRows | None = None
    key: str = ""
    """The field of the request that holds the one key."""
    kind: int = GROUP
    rows_from: int = 0
    """The first version with rows; those before it have ``key``."""


def _by_group(key: str = "group_id") -> Api:
    return Api(Way.COORDINATOR, key=key)


def _by_transaction(key: str = "transactional_id") -> Api:
    return Api(Way.COORDINATOR, key=key, kind=TRANSACTION)


_ANY, _HERE, _CONTROLLER = Api(Way.ANY), Api(Way.HERE), Api(Way.CONTROLLER)
_DESCRIBES_GROUPS = Api(Way.COORDINATORS, KeyRows("group_ids", ""), KeyRows("groups", "group_id"))
_SHARES = Api(
    Way.LEADERS,
    PartitionRows("topics", "", "topic_id", "partitions", "partition_index"),
    PartitionRows("responses", "", "topic_id", "partitions", "partition_index"),
)

APIS: dict[int, Api] = {
    ApiKey.PRODUCE: Api(
        Way.LEADERS,
        PartitionRows("topic_data", "name", "topic_id", "partition_data", "index"),
        PartitionRows("responses", "name", "topic_id", "partition_responses", "index"),
    ),
    ApiKey.FETCH: Api(
        Way.LEADERS,
        PartitionRows("topics", "topic", "topic_id", "partitions", "partition"),
        PartitionRows("responses", "topic", "topic_id", "partitions", "partition_index"),
    ),
    ApiKey.LIST_OFFSETS: Api(
        Way.LEADERS,
        PartitionRows("topics", "name", "", "partitions", "partition_index"),
        PartitionRows("topics", "name", "", "partitions", "partition_index"),
    ),
    ApiKey.METADATA: _ANY,
    ApiKey.OFFSET_COMMIT: _by_group(),
    ApiKey.OFFSET_FETCH: Api(
        Way.COORDINATORS,
        KeyRows("groups", "group_id"),
        KeyRows("groups", "group_id"),
        key="group_id",
        rows_from=8,
    ),
    ApiKey.FIND_COORDINATOR: _ANY,
    ApiKey.JOIN_GROUP: _by_group(),
    ApiKey.HEARTBEAT: _by_group(),
    ApiKey.LEAVE_GROUP: _by_group(),
    ApiKey.SYNC_GROUP: _by_group(),
    ApiKey.DESCRIBE_GROUPS: Api(Way.COORDINATORS, KeyRows("groups", ""), KeyRows("groups", "group_id")),
    ApiKey.LIST_GROUPS: Api(Way.EVERY, answered=KeyRows("groups", "group_id")),
    ApiKey.SASL_HANDSHAKE: _HERE,
    ApiKey.API_VERSIONS: _HERE,
    ApiKey.CREATE_TOPICS: _CONTROLLER,
    ApiKey.DELETE_TOPICS: _CONTROLLER,
    ApiKey.DELETE_RECORDS: Api(
        Way.LEADERS,
        PartitionRows("topics", "name", "", "partitions", "partition_index"),
        PartitionRows("topics", "name", "", "partitions", "partition_index"),
    ),
    ApiKey.INIT_PRODUCER_ID: _by_transaction(),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Api(
        Way.LEADERS,
        PartitionRows("topics", "topic", "", "partitions", "partition"),
        PartitionRows("topics", "topic", "", "partitions", "partition"),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: Api(
        Way.COORDINATORS,
        KeyRows("transactions", "transactional_id"),
        KeyRows("results_by_transaction", "transactional_id"),
        key="v3_and_below_transactional_id",
        kind=TRANSACTION,
        rows_from=4,
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: _by_transaction(),
    ApiKey.END_TXN: _by_transaction(),
    # Each marker has its own partitions; whoever asks through a proxy (kafka-transactions abort) names one.
    ApiKey.WRITE_TXN_MARKERS: Api(
        Way.LEADERS,
        PartitionRows("markers.topics", "name", "", "partition_indexes", ""),
        KeyRows("markers", "producer_id", "topics"),
    ),
    ApiKey.TXN_OFFSET_COMMIT: _by_group(),
    ApiKey.DESCRIBE_ACLS: _ANY,
    ApiKey.CREATE_ACLS: _CONTROLLER,
    ApiKey.DELETE_ACLS: _CONTROLLER,
    ApiKey.DESCRIBE_CONFIGS: _ANY,
    ApiKey.ALTER_CONFIGS: _CONTROLLER,
    # Each tells of what it serves; their directories may have the same name.
    ApiKey.DESCRIBE_LOG_DIRS: Api(Way.EVERY, answered=KeyRows("results", "log_dir", "topics")),
    ApiKey.SASL_AUTHENTICATE: _HERE,
    ApiKey.CREATE_PARTITIONS: _CONTROLLER,
    ApiKey.DELETE_GROUPS: Api(Way.COORDINATORS, KeyRows("groups_names", ""), KeyRows("results", "group_id")),
    ApiKey.ELECT_LEADERS: _CONTROLLER,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _CONTROLLER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _CONTROLLER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _CONTROLLER,
    ApiKey.OFFSET_DELETE: _by_group(),
    ApiKey.CREATE_DELEGATION_TOKEN: _CONTROLLER,
    ApiKey.RENEW_DELEGATION_TOKEN: _CONTROLLER,
    ApiKey.EXPIRE_DELEGATION_TOKEN: _CONTROLLER,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _CONTROLLER,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _ANY,
    ApiKey.ALTER_CLIENT_QUOTAS: _CONTROLLER,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _CONTROLLER,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _CONTROLLER,
    ApiKey.DESCRIBE_CLUSTER: _ANY,
    ApiKey.DESCRIBE_PRODUCERS: Api(
        Way.LEADERS,
        PartitionRows("topics", "name", "", "partition_indexes", ""),
        PartitionRows("topics", "name", "", "partitions", "partition_index"),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: Api(
        Way.COORDINATORS,
        KeyRows("transactional_ids", ""),
        KeyRows("transaction_states", "transactional_id"),
        kind=TRANSACTION,
    ),
    ApiKey.LIST_TRANSACTIONS: Api(Way.EVERY, answered=KeyRows("transaction_states", "transactional_id")),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _by_group(),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _DESCRIBES_GROUPS,
    ApiKey.STREAMS_GROUP_HEARTBEAT: _by_group(),
    ApiKey.STREAMS_GROUP_DESCRIBE: _DESCRIBES_GROUPS,
    ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE: _by_group(),
    ApiKey.SHARE_GROUP_HEARTBEAT: _by_group(),
    ApiKey.SHARE_GROUP_DESCRIBE: _DESCRIBES_GROUPS,
    # Records are held in a session with each leader: `magnetar.proxy.kafka.sharing`.
    ApiKey.SHARE_FETCH: _SHARES,
    ApiKey.SHARE_ACKNOWLEDGE: _SHARES,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Api(
        Way.COORDINATORS, KeyRows("groups", "group_id"), KeyRows("groups", "group_id")
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _by_group(),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _by_group(),
    ApiKey.LIST_CONFIG_RESOURCES: _ANY,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _CONTROLLER,
    ApiKey.UPDATE_FEATURES: _CONTROLLER,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _ANY,
    ApiKey.PUSH_TELEMETRY: _ANY,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _ANY,
}

NOT_PASSED: dict[int, str] = {
    ApiKey.DESCRIBE_QUORUM: "it tells of controllers, which no client of a proxy reaches"
}
NOT_PASSED |= dict.fromkeys(
    (
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ),
    "brokers ask each other so, by their own addresses",
)
"""APIs that clients are not offered here, and why."""

_FIRST: dict[int, int] = {ApiKey.SASL_HANDSHAKE: 1}
"""Where the proxy begins later than brokers do: with SaslHandshake 0 tokens come without a header."""


def versions_of(api_key: int) -> range:
    """Return the versions that the proxy passes on; none of an API that it, or our brokers, do not know."""
    route = ROUTE_BY_KEY.get(api_key)
    if route is None or api_key not in APIS:
        return range(0)
    return range(max(route.first, _FIRST.get(api_key, 0)), route.last + 1)
