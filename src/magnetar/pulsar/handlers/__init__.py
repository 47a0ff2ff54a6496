"""One handler per command of Pulsar's binary protocol. ``ROUTES`` is the only list of what is served."""

from __future__ import annotations

from magnetar.pulsar.handlers import (
    acks,
    connect,
    consume,
    lookup,
    positions,
    produce,
    schema,
    topics,
    transactions,
)
from magnetar.pulsar.route import CommandRoute, error_answer, silence
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand

ROUTES: dict[BaseCommand.Type, CommandRoute] = {
    BaseCommand.CONNECT: CommandRoute("connect", connect.connect, silence),
    BaseCommand.AUTH_RESPONSE: CommandRoute("authResponse", connect.auth_response, silence),
    BaseCommand.PING: CommandRoute("ping", connect.ping, silence),
    BaseCommand.PONG: CommandRoute("pong", connect.pong, silence),
    BaseCommand.LOOKUP: CommandRoute("lookupTopic", lookup.lookup, lookup.lookup_refused),
    BaseCommand.PARTITIONED_METADATA: CommandRoute(
        "partitionMetadata", lookup.partitioned_metadata, lookup.partitioned_metadata_refused
    ),
    BaseCommand.GET_TOPICS_OF_NAMESPACE: CommandRoute(
        "getTopicsOfNamespace", topics.topics_of_namespace, error_answer
    ),
    BaseCommand.WATCH_TOPIC_LIST: CommandRoute("watchTopicList", topics.watch_topic_list, error_answer),
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: CommandRoute("watchTopicListClose", topics.close_watch, error_answer),
    BaseCommand.PRODUCER: CommandRoute("producer", produce.producer, error_answer),
    BaseCommand.SEND: CommandRoute("send", produce.send, silence),
    BaseCommand.CLOSE_PRODUCER: CommandRoute("close_producer", produce.close_producer, error_answer),
    BaseCommand.SUBSCRIBE: CommandRoute("subscribe", consume.subscribe, error_answer),
    BaseCommand.FLOW: CommandRoute("flow", consume.flow, silence),
    BaseCommand.ACK: CommandRoute("ack", acks.ack, silence),
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: CommandRoute(
        "redeliverUnacknowledgedMessages", consume.redeliver, silence
    ),
    BaseCommand.UNSUBSCRIBE: CommandRoute("unsubscribe", consume.unsubscribe, error_answer),
    BaseCommand.CLOSE_CONSUMER: CommandRoute("close_consumer", consume.close_consumer, error_answer),
    BaseCommand.SEEK: CommandRoute("seek", positions.seek, error_answer),
    BaseCommand.GET_LAST_MESSAGE_ID: CommandRoute(
        "getLastMessageId", positions.last_message_id, error_answer
    ),
    BaseCommand.CONSUMER_STATS: CommandRoute("consumerStats", positions.consumer_stats, error_answer),
    BaseCommand.GET_SCHEMA: CommandRoute("getSchema", schema.get_schema, schema.get_schema_refused),
    BaseCommand.GET_OR_CREATE_SCHEMA: CommandRoute(
        "getOrCreateSchema", schema.get_or_create_schema, schema.get_or_create_schema_refused
    ),
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: CommandRoute(
        "tcClientConnectRequest",
        transactions.connect,
        transactions.refusal(BaseCommand.TC_CLIENT_CONNECT_RESPONSE, "tcClientConnectResponse"),
    ),
    BaseCommand.NEW_TXN: CommandRoute(
        "newTxn", transactions.new_txn, transactions.refusal(BaseCommand.NEW_TXN_RESPONSE, "newTxnResponse")
    ),
    BaseCommand.ADD_PARTITION_TO_TXN: CommandRoute(
        "addPartitionToTxn",
        transactions.add_partition,
        transactions.refusal(BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE, "addPartitionToTxnResponse"),
    ),
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: CommandRoute(
        "addSubscriptionToTxn",
        transactions.add_subscription,
        transactions.refusal(BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE, "addSubscriptionToTxnResponse"),
    ),
    BaseCommand.END_TXN: CommandRoute(
        "endTxn", transactions.end_txn, transactions.refusal(BaseCommand.END_TXN_RESPONSE, "endTxnResponse")
    ),
}
