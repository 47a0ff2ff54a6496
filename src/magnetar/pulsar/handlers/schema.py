"""GET_SCHEMA and GET_OR_CREATE_SCHEMA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.base.errors import TopicNotFound
from magnetar.pulsar.admission import check_schema
from magnetar.pulsar.errors import NotAuthorized
from magnetar.pulsar.handlers.lookup import check_look_up
from magnetar.pulsar.names import PulsarName
from magnetar.pulsar.schemas import no_schema
from magnetar.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchema,
    CommandGetSchema,
    ServerError,
)

if TYPE_CHECKING:
    from magnetar.pulsar.connection import PulsarConnection


async def get_schema(connection: PulsarConnection, command: CommandGetSchema, entry: memoryview) -> None:
    """Answer with a version of a topic's schema, or the latest one."""
    name = PulsarName.parse(command.topic)
    check_look_up(connection, name.topic, "GetSchema")
    version = None
    if command.schema_version:
        version = int.from_bytes(command.schema_version, "big", signed=True)
    found = await connection.services.schemas.get(name.topic, version)
    answer = BaseCommand(type=BaseCommand.GET_SCHEMA_RESPONSE)
    response = answer.getSchemaResponse
    response.request_id = command.request_id
    if found is not None:
        response.schema.CopyFrom(found.to_wire())
        response.schema_version = found.wire_version
    elif command.HasField("schema_version") and not command.schema_version:
        # Go's client asks for the schema of messages whose version is the one that stands for none.
        response.schema.CopyFrom(no_schema(name.topic))
        response.schema_version = b""
    else:
        raise TopicNotFound("Topic not found or no-schema")
    connection.answer(answer)


def get_schema_refused(command: CommandGetSchema, code: ServerError, message: str) -> BaseCommand:
    answer = BaseCommand(type=BaseCommand.GET_SCHEMA_RESPONSE)
    answer.getSchemaResponse.request_id = command.request_id
    answer.getSchemaResponse.error_code = code
    answer.getSchemaResponse.error_message = message
    return answer


async def get_or_create_schema(
    connection: PulsarConnection, command: CommandGetOrCreateSchema, entry: memoryview
) -> None:
    """Answer with the version that a schema has, made if it is new."""
    name = PulsarName.parse(command.topic)
    if connection.access is not None and not connection.access.produces(name.topic):
        raise NotAuthorized.client("GetOrCreateSchema", name.topic)
    topic = await connection.services.topics.known(name)
    if topic is None:
        raise TopicNotFound(f"Topic {name} does not exist")
    await check_schema(connection.services, topic.name, command.schema, produces=True)
    version = await connection.services.schemas.for_producer(topic.name, command.schema, connection.role)
    answer = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE)
    answer.getOrCreateSchemaResponse.request_id = command.request_id
    answer.getOrCreateSchemaResponse.schema_version = version  # empty for none: Java's client wants it
    connection.answer(answer)


def get_or_create_schema_refused(
    command: CommandGetOrCreateSchema, code: ServerError, message: str
) -> BaseCommand:
    answer = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE)
    answer.getOrCreateSchemaResponse.request_id = command.request_id
    answer.getOrCreateSchemaResponse.error_code = code
    answer.getOrCreateSchemaResponse.error_message = message
    return answer
