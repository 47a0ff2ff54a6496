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
from magnetar.pulsar.route import Route, error_answer, silence
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand

ROUTES: dict[BaseCommand.Type, Route] = {
    BaseCommand.CONNECT: Route("connect", connect.connect, silence),
    BaseCommand.AUTH_RESPONSE: Route("authResponse", connect.auth_response, silence),
    BaseCommand.PING: Route("ping", connect.ping, silence),
    BaseCommand.PONG: Route("pong", connect.pong, silence),
    BaseCommand.LOOKUP: Route("lookupTopic", lookup.lookup, lookup.lookup_refused),
    BaseCommand.PARTITIONED_METADATA: Route(
        "partitionMetadata", lookup.partitioned_metadata, lookup.partitioned_metadata_refused
    ),
    BaseCommand.GET_TOPICS_OF_NAMESPACE: Route(
        "getTopicsOfNamespace", topics.topics_of_namespace, error_answer
    ),
    BaseCommand.WATCH_TOPIC_LIST: Route("watchTopicList", topics.watch_topic_list, error_answer),
    BaseCommand.WATCH_TOPIC_LIST_CLOSE: Route("watchTopicListClose", topics.close_watch, error_answer),
    BaseCommand.PRODUCER: Route("producer", produce.producer, error_answer),
    BaseCommand.SEND: Route("send", produce.send, silence),
    BaseCommand.CLOSE_PRODUCER: Route("close_producer", produce.close_producer, error_answer),
    BaseCommand.SUBSCRIBE: Route("subscribe", consume.subscribe, error_answer),
    BaseCommand.FLOW: Route("flow", consume.flow, silence),
    BaseCommand.ACK: Route("ack", acks.ack, silence),
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: Route(
        "redeliverUnacknowledgedMessages", consume.redeliver, silence
    ),
    BaseCommand.UNSUBSCRIBE: Route("unsubscribe", consume.unsubscribe, error_answer),
    BaseCommand.CLOSE_CONSUMER: Route("close_consumer", consume.close_consumer, error_answer),
    BaseCommand.SEEK: Route("seek", positions.seek, error_answer),
    BaseCommand.GET_LAST_MESSAGE_ID: Route("getLastMessageId", positions.last_message_id, error_answer),
    BaseCommand.CONSUMER_STATS: Route("consumerStats", positions.consumer_stats, error_answer),
    BaseCommand.GET_SCHEMA: Route("getSchema", schema.get_schema, schema.get_schema_refused),
    BaseCommand.GET_OR_CREATE_SCHEMA: Route(
        "getOrCreateSchema", schema.get_or_create_schema, schema.get_or_create_schema_refused
    ),
    BaseCommand.TC_CLIENT_CONNECT_REQUEST: Route(
        "tcClientConnectRequest",
        transactions.refuse,
        transactions.refusal(BaseCommand.TC_CLIENT_CONNECT_RESPONSE, "tcClientConnectResponse"),
    ),
    BaseCommand.NEW_TXN: Route(
        "newTxn", transactions.refuse, transactions.refusal(BaseCommand.NEW_TXN_RESPONSE, "newTxnResponse")
    ),
    BaseCommand.ADD_PARTITION_TO_TXN: Route(
        "addPartitionToTxn",
        transactions.refuse,
        transactions.refusal(BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE, "addPartitionToTxnResponse"),
    ),
    BaseCommand.ADD_SUBSCRIPTION_TO_TXN: Route(
        "addSubscriptionToTxn",
        transactions.refuse,
        transactions.refusal(BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE, "addSubscriptionToTxnResponse"),
    ),
    BaseCommand.END_TXN: Route(
        "endTxn", transactions.refuse, transactions.refusal(BaseCommand.END_TXN_RESPONSE, "endTxnResponse")
    ),
}
