"""A lookup of a topic that nobody has at the moment is answered with whoever gets it, another broker or this one."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.cluster.ownership import BrokerInfo, NotOwned, Owned
from magnetar.serving.listeners import Endpoint
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, CommandLookupTopicResponse, ServerError
from tests.pulsar.inside import Inside, inside
from tests.pulsar.test_enforced import lookup

T = "persistent://public/default/t"


def moves_to(broker: Inside, monkeypatch: pytest.MonkeyPatch, owner: Owned | None) -> None:
    """Have nobody own anything; while one waits for that to change it becomes ``owner``'s."""
    ownership: Any = broker.broker.cluster.ownership
    others = [BrokerInfo(2, None, {"PULSAR": Endpoint("other", 6651)})]
    monkeypatch.setattr(ownership, "owner", lambda _topic, _partition: None)
    monkeypatch.setattr(ownership, "brokers", lambda: others)

    async def acquire(bundle: object) -> Owned:
        raise NotOwned(f"Namespace bundle {bundle}", owner)

    monkeypatch.setattr(ownership, "acquire", acquire)


async def looked_up(broker: Inside) -> CommandLookupTopicResponse:
    answer: BaseCommand = await broker.client().ask(lookup(T))
    return answer.lookupTopicResponse


async def test_whom_another_broker_serves_is_sent_there(monkeypatch: pytest.MonkeyPatch) -> None:
    async with inside() as broker:
        moves_to(broker, monkeypatch, Owned(2, 5))
        told = await looked_up(broker)
        assert told.response == CommandLookupTopicResponse.Connect
        assert told.brokerServiceUrl == "pulsar://other:6651"


async def test_whom_nobody_serves_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with inside() as broker:
        moves_to(broker, monkeypatch, None)
        told = await looked_up(broker)
        assert told.response == CommandLookupTopicResponse.Failed
        assert told.error == ServerError.ServiceNotReady
