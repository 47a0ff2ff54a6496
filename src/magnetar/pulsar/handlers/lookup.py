"""LOOKUP and PARTITIONED_METADATA: which broker serves a topic, and how many partitions it has."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from magnetar.base.errors import NamespaceNotFound, TopicNotFound
from magnetar.cluster.ownership import NotOwned, Owned
from magnetar.pulsar.errors import NotAuthorized, PulsarError
from magnetar.pulsar.names import PulsarName
from magnetar.pulsar.non_persistent import check_namespace
from magnetar.serving.listeners import Endpoint
from magnetar.topics.names import TopicName
from magnetar.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandLookupTopic,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    ServerError,
)

if TYPE_CHECKING:
    from magnetar.pulsar.connection import PulsarConnection


def check_look_up(connection: PulsarConnection, topic: TopicName, to: str) -> None:
    """Raise ``NotAuthorized`` unless the client may know of a topic; all may know that a tenant is missing."""
    if connection.access is not None and not connection.access.looks_up(topic):
        if topic.tenant not in connection.services.broker.namespaces.tenants():
            raise NamespaceNotFound(f"Tenant {topic.tenant} does not exist")
        raise NotAuthorized.client(to, topic)


def lookup(
    connection: PulsarConnection, command: CommandLookupTopic, entry: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Tell which broker has a topic, of those there are or may be; this one takes what nobody has."""
    name = PulsarName.parse(command.topic)
    transactions = connection.services.transactions
    finds_coordinator = transactions is not None and name.finds_coordinator
    if not finds_coordinator:
        check_look_up(connection, name.topic, "Lookup")
    if not finds_coordinator and connection.services.topics.find(name) is None:
        check_namespace(connection.services.broker, name)
    listener = command.advertised_listener_name
    if listener and listener.upper() != connection.listener.name:
        raise PulsarError(f"the broker do not have {listener} listener", ServerError.ServiceNotReady)
    if finds_coordinator:  # it is where its transactions are kept, and that is taken when this one starts
        assert transactions is not None
        name = transactions.kept_in(name)
    ownership = connection.services.broker.cluster.ownership
    owner = ownership.owner(name.topic, name.partition or 0)
    if owner is None:
        return _taken(connection, command, name)
    _send_to(connection, command, name, owner)
    return None


async def _taken(connection: PulsarConnection, command: CommandLookupTopic, name: PulsarName) -> None:
    ownership = connection.services.broker.cluster.ownership
    try:
        owner = await ownership.acquire_later(ownership.bundle_of(name.topic, name.partition or 0))
    except NotOwned as elsewhere:
        if elsewhere.owner is None:
            raise
        owner = elsewhere.owner  # another broker was quicker
    _send_to(connection, command, name, owner)


def _send_to(
    connection: PulsarConnection, command: CommandLookupTopic, name: PulsarName, owner: Owned
) -> None:
    where = _endpoint(connection, owner)
    if where is None:
        raise PulsarError(
            f"broker {owner.node_id} does not have {connection.listener.name} listener",
            ServerError.ServiceNotReady,
        )
    answer = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
    response = answer.lookupTopicResponse
    response.request_id = command.request_id
    response.response = CommandLookupTopicResponse.Connect
    response.authoritative = True
    if connection.listener.tls:
        response.brokerServiceUrlTls = f"pulsar+ssl://{where}"
    else:
        response.brokerServiceUrl = f"pulsar://{where}"
    connection.answer(answer)


def _endpoint(connection: PulsarConnection, owner: Owned) -> Endpoint | None:
    """Return where clients of this listener reach a broker."""
    ownership = connection.services.broker.cluster.ownership
    if owner.node_id == ownership.node_id:
        return connection.listener.advertised  # where the client has just come in
    found = (each for each in ownership.brokers() if each.node_id == owner.node_id)
    return next((each.endpoints.get(connection.listener.name) for each in found), None)


def lookup_refused(command: CommandLookupTopic, code: ServerError, message: str) -> BaseCommand:
    answer = BaseCommand(type=BaseCommand.LOOKUP_RESPONSE)
    response = answer.lookupTopicResponse
    response.request_id = command.request_id
    response.response = CommandLookupTopicResponse.Failed
    response.error = code
    response.message = message
    return answer


async def partitioned_metadata(
    connection: PulsarConnection, command: CommandPartitionedTopicMetadata, entry: memoryview
) -> None:
    """Answer with the number of partitions; 0 for a topic that is not partitioned, or is still to be made."""
    name = PulsarName.parse(command.topic)
    transactions = connection.services.transactions
    if transactions is not None and name.finds_coordinator:  # all who have logged in may
        _tell_partitions(
            connection, command, 0 if name.partition is not None else transactions.coordinator.coordinators
        )
        return
    check_look_up(connection, name.topic, "Get Partition Metadata")
    broker, topics = connection.services.broker, connection.services.topics
    topic = await topics.known(name)
    if topic is None:
        check_namespace(broker, name)
        wanted = broker.auto_topics(name.topic)
        if not (wanted.allowed and command.metadata_auto_creation_enabled):
            raise TopicNotFound(f"Topic {name} does not exist")
        if wanted.partitions is not None and name.persistent and name.partition is None:
            topic = await broker.auto_create(
                str(name.topic)
            )  # as Pulsar does where they are to have partitions
    elif (name.partition or 0) >= topic.partitions and (
        topic.partitioned or not command.metadata_auto_creation_enabled
    ):
        raise TopicNotFound(f"Topic {name} does not exist")
    has_partitions = topic is not None and name.partition is None and topic.partitioned
    _tell_partitions(connection, command, topic.partitions if topic is not None and has_partitions else 0)


def _tell_partitions(
    connection: PulsarConnection, command: CommandPartitionedTopicMetadata, partitions: int
) -> None:
    answer = BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE)
    response = answer.partitionMetadataResponse
    response.request_id = command.request_id
    response.response = CommandPartitionedTopicMetadataResponse.Success
    response.partitions = partitions
    connection.answer(answer)


def partitioned_metadata_refused(
    command: CommandPartitionedTopicMetadata, code: ServerError, message: str
) -> BaseCommand:
    answer = BaseCommand(type=BaseCommand.PARTITIONED_METADATA_RESPONSE)
    response = answer.partitionMetadataResponse
    response.request_id = command.request_id
    response.response = CommandPartitionedTopicMetadataResponse.Failed
    response.error = code
    response.message = message
    return answer
