"""A topic is opened while the metadata cannot be reached: clients are told to come again, and nobody is alarmed."""

from __future__ import annotations

import logging

import pytest

from magnetar.metadata import MetadataCorrupt, MetadataError, MetadataUnavailable, MetadataUncertain
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, ServerError
from tests.pulsar import raw
from tests.pulsar.inside import inside


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MetadataUnavailable("ZooKeeper cannot be reached"), ServerError.ServiceNotReady),
        (MetadataUncertain("ZooKeeper went"), ServerError.ServiceNotReady),
        (MetadataCorrupt("/marks", "garbage"), ServerError.MetadataError),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, MetadataError) else "",
)
async def test_who_opens_a_topic_then_is_told_to_come_again(
    error: MetadataError, told: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with inside() as broker:
        client = broker.client()

        store = broker.broker.store
        children = store.children

        async def away(path: str) -> list[str]:
            if not path.startswith("/magnetar/group-cursors"):
                return await children(path)
            raise error

        with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "magnetar.pulsar"):
            patch.setattr(store, "children", away)
            for command in (raw.subscribe("t"), raw.producer("t", request_id=8)):
                refused = await client.ask(command)
                assert (refused.type, refused.error.error) == (BaseCommand.ERROR, told)
        assert not [each for each in caplog.records if each.exc_info]
        client.send(raw.subscribe("t", request_id=9))
        assert (await client.hears(BaseCommand.SUCCESS)).success.request_id == 9
        client.leave()
