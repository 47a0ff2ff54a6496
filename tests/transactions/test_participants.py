"""A topic that a transaction is to have in it, while it is being closed or goes to another broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from magnetar.cluster.ownership import NotOwned
from magnetar.coordination.transactions import TxnId, TxnPartition
from magnetar.ledger.errors import LedgerClosed
from magnetar.metadata import MetadataUnavailable
from magnetar.pulsar.topic import PulsarTopic
from magnetar.pulsar.topics import PulsarTopics
from magnetar.pulsar.transactions import participants as module
from magnetar.pulsar.transactions.participants import TopicParticipants
from tests.admin.house import House

TXN, WHERE = TxnId(0, 7), TxnPartition("flights", 0)
FAULTS = [
    LedgerClosed("flights-0 is closed"),
    NotOwned("flights-0", None),
    MetadataUnavailable("the session is lost"),
]


class Doors:
    """Opens the topic once there are no more faults."""

    def __init__(self, participants: TopicParticipants, monkeypatch: pytest.MonkeyPatch) -> None:
        self.participants = participants
        self.faults: list[Exception] = []
        self.opened = participants._topic
        monkeypatch.setattr(participants, "_topic", self._open)

    async def _open(self, where: TxnPartition) -> PulsarTopic:
        if self.faults:
            raise self.faults.pop(0)
        return await self.opened(where)


@pytest.fixture
async def doors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Doors]:
    async with House(tmp_path / "data") as house:
        broker = house.services.broker
        await house.topic(WHERE.topic)
        topics = PulsarTopics(broker, lambda: 0)
        yield Doors(TopicParticipants(broker, topics), monkeypatch)
        await topics.close()


async def test_a_topic_that_is_being_closed_is_asked_again(doors: Doors) -> None:
    """Pulsar's clients take a refusal for the end of the transaction."""
    doors.faults = list(FAULTS)
    await doors.participants.begin(TXN, WHERE)
    assert not doors.faults
    assert (await doors.opened(WHERE)).open_txns == {TXN}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_of_one_that_stays_closed_it_is_said_why(
    fault: Exception, doors: Doors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.3)
    doors.faults = [fault] * 1000
    with pytest.raises(type(fault)):
        await doors.participants.begin(TXN, WHERE)
