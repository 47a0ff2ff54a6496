"""Topics that another broker of the cluster made a moment ago, of which metadata have not told this one yet.

Its watches are deaf here for good, as they are for a moment on a busy machine. Pulsar's clients take "there is none"
for final, or make something else, so nobody may be told that before a look at metadata.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from magnetar.metadata import ANY, Put
from magnetar.pulsar.rest.app import make_app
from magnetar.pulsar.rest.request import Address
from magnetar.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandGetOrCreateSchema,
    CommandPartitionedTopicMetadata,
    CommandPartitionedTopicMetadataResponse,
    CommandProducer,
    Schema,
)
from tests.pulsar import raw
from tests.pulsar.inside import Inside, inside

NAMESPACE = "public/fresh"
TOPIC = f"{NAMESPACE}/{{}}/made-elsewhere"


@asynccontextmanager
async def deaf() -> AsyncIterator[Inside]:
    """A broker to which no watch tells anything, with a namespace and topics of three partitions that others made."""
    async with inside() as broker:
        metadata = broker.broker.metadata
        for each in metadata._following:
            assert each.task is not None
            each.task.cancel()
        await metadata.store.commit([
            Put(f"/admin/policies/{NAMESPACE}", b"{}", ANY),
            *(
                Put(f"/admin/partitioned-topics/{TOPIC.format(domain)}", b'{"partitions":3}', ANY)
                for domain in ("persistent", "non-persistent")
            ),
        ])  # fmt: skip
        yield broker


def called(domain: str, partition: int | None = None) -> str:
    suffix = "" if partition is None else f"-partition-{partition}"
    return f"{domain}://{NAMESPACE}/made-elsewhere{suffix}"


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_its_partitions_are_told(domain: str) -> None:
    async with deaf() as broker:
        asked = CommandPartitionedTopicMetadata(topic=called(domain), request_id=1)
        answer = await broker.client().ask(
            BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=asked)
        )
        told = answer.partitionMetadataResponse
        assert told.response == CommandPartitionedTopicMetadataResponse.Success, told.message
        assert told.partitions == 3


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_its_partitions_are_written_to(domain: str) -> None:
    async with deaf() as broker:
        asked = CommandProducer(topic=called(domain, 1), producer_id=1, request_id=1)
        answer = await broker.client().ask(BaseCommand(type=BaseCommand.PRODUCER, producer=asked))
        assert answer.type == BaseCommand.PRODUCER_SUCCESS, answer.error.message


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_its_partitions_are_read(domain: str) -> None:
    async with deaf() as broker:
        command = raw.subscribe(called(domain, 2))
        command.subscribe.force_topic_creation = False
        answer = await broker.client().ask(command)
        assert answer.type == BaseCommand.SUCCESS, answer.error.message


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_partitions_that_were_added_are_told_written_and_read(domain: str) -> None:
    async with deaf() as broker:
        client = broker.client()
        first = CommandProducer(topic=called(domain, 0), producer_id=1, request_id=1)
        answer = await client.ask(BaseCommand(type=BaseCommand.PRODUCER, producer=first))
        assert answer.type == BaseCommand.PRODUCER_SUCCESS, answer.error.message
        path = f"/admin/partitioned-topics/{TOPIC.format(domain)}"
        await broker.broker.metadata.store.commit([Put(path, b'{"partitions":5}', ANY)])
        added = CommandProducer(topic=called(domain, 3), producer_id=2, request_id=2)
        answer = await client.ask(BaseCommand(type=BaseCommand.PRODUCER, producer=added))
        assert answer.type == BaseCommand.PRODUCER_SUCCESS, answer.error.message
        await broker.broker.metadata.store.commit([Put(path, b'{"partitions":6}', ANY)])
        answer = await client.ask(raw.subscribe(called(domain, 5)))
        assert answer.type == BaseCommand.SUCCESS, answer.error.message
        await broker.broker.metadata.store.commit([Put(path, b'{"partitions":7}', ANY)])
        asked = CommandPartitionedTopicMetadata(topic=called(domain, 6), request_id=1)
        answer = await client.ask(BaseCommand(type=BaseCommand.PARTITIONED_METADATA, partitionMetadata=asked))
        told = answer.partitionMetadataResponse
        assert told.response == CommandPartitionedTopicMetadataResponse.Success, told.message


async def test_its_schema_is_made() -> None:
    async with deaf() as broker:
        schema = Schema(name="s", type=Schema.String, schema_data=b"")
        asked = CommandGetOrCreateSchema(request_id=1, topic=called("persistent"), schema=schema)
        answer = await broker.client().ask(
            BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA, getOrCreateSchema=asked)
        )
        told = answer.getOrCreateSchemaResponse
        assert not told.HasField("error_code"), told.error_message


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_the_admin_rest_knows_it_and_its_namespace(domain: str) -> None:
    async with deaf() as broker:
        own = Address("pulsar://here:6650", "", "http://here:8080", "")
        transport = httpx.ASGITransport(make_app(broker.services, lambda: own))
        async with httpx.AsyncClient(transport=transport, base_url="http://here:8080/admin/v2") as client:
            assert (await client.get(f"/namespaces/{NAMESPACE}/bundles")).status_code == 200
            told = await client.get(f"/{domain}/{NAMESPACE}/made-elsewhere/partitions")
            assert (told.status_code, told.json()) == (200, {"partitions": 3})
