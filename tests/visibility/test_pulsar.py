"""Nothing of Pulsar's gives, tells or passes over a message that is not durable, by command or by REST."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from magnetar.ledger.port import ManagedLedger
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, CommandSubscribe, MessageIdData
from tests.pulsar import raw
from tests.visibility.conftest import TOPIC, House, PulsarClient, soon

NAME = f"persistent://public/default/{TOPIC}"
REST = f"/admin/v2/persistent/public/default/{TOPIC}"
DURABLE, WRITTEN = 2, 3


class Beside:
    """A producer whose third message waits for the disk, and who else is there."""

    def __init__(self, house: House, producer: PulsarClient, log: ManagedLedger, last: MessageIdData) -> None:
        self.house, self.producer, self.log, self.last = house, producer, log, last

    async def subscribed(self, name: str = "s", **options: Any) -> PulsarClient:
        """Return a consumer that gets what it may get."""
        client = await self.house.pulsar()
        answer = await soon(client.ask(raw.subscribe(NAME, name, **options)))
        assert answer.type == BaseCommand.SUCCESS
        client.say(raw.flow(100))
        return client

    async def last_id(self, client: PulsarClient) -> MessageIdData:
        command = BaseCommand(type=BaseCommand.GET_LAST_MESSAGE_ID)
        command.getLastMessageId.consumer_id = 1
        command.getLastMessageId.request_id = 5
        return (await answer_of(client, command)).getLastMessageIdResponse.last_message_id

    async def becomes_durable(self) -> None:
        self.house.disk.let_go()
        receipt, _ = await soon(self.producer.hear())
        assert receipt.type == BaseCommand.SEND_RECEIPT
        assert receipt.send_receipt.message_id.entryId == self.last.entryId + 1


async def messages(client: PulsarClient, count: int) -> list[bytes]:
    """Return the texts of so many messages."""
    found = []
    while len(found) < count:
        command, entry = await soon(client.hear())
        if command.type == BaseCommand.MESSAGE:
            found.append(entry[-5:])
    return found


async def answer_of(client: PulsarClient, command: BaseCommand) -> BaseCommand:
    """Ask; pass over the messages that are on their way."""
    client.say(command)
    while True:
        answer, _ = await soon(client.hear())
        if answer.type != BaseCommand.MESSAGE:
            return answer


@pytest.fixture
async def beside(house: House) -> Beside:
    """Two messages are durable, the third is written and waits for the disk."""
    client = await house.pulsar()
    await soon(client.ask(raw.producer(NAME)))
    for number in range(DURABLE):
        receipt = await soon(client.ask(raw.send(sequence_id=number), raw.entry(b"text%d" % number)))
        assert receipt.type == BaseCommand.SEND_RECEIPT
    house.disk.hold()
    client.say(raw.send(sequence_id=DURABLE), raw.entry(b"text%d" % DURABLE))
    log = await house.written_to(WRITTEN)
    assert log.high_watermark == DURABLE
    return Beside(house, client, log, receipt.send_receipt.message_id)


@pytest.mark.parametrize("durable", [True, False])
async def test_consumers_and_readers_get_what_is_durable(beside: Beside, durable: bool) -> None:
    client = await beside.subscribed(durable=durable, initialPosition=CommandSubscribe.Earliest)
    assert await messages(client, DURABLE) == [b"text0", b"text1"]
    assert (await answer_of(client, raw.ping())).type == BaseCommand.PONG  # and no third one before it
    await beside.becomes_durable()
    assert await messages(client, 1) == [b"text2"]


async def test_the_last_message_is_a_durable_one(beside: Beside) -> None:
    client = await beside.subscribed()
    assert (await beside.last_id(client)).entryId == beside.last.entryId
    assert (await beside.house.http.get(f"{REST}/lastMessageId")).json()["entryId"] == beside.last.entryId
    await beside.becomes_durable()
    assert (await beside.last_id(client)).entryId == beside.last.entryId + 1
    assert (await beside.house.http.get(f"{REST}/lastMessageId")).json()["entryId"] == beside.last.entryId + 1


@pytest.mark.parametrize("durable", [True, False])
async def test_who_begins_at_the_end_gets_what_becomes_durable_later(beside: Beside, durable: bool) -> None:
    client = await beside.subscribed(durable=durable, initialPosition=CommandSubscribe.Latest)
    await beside.becomes_durable()
    assert await messages(client, 1) == [b"text2"]


async def test_what_is_passed_over_is_durable(beside: Beside) -> None:
    """Else a subscription would, after the power failed, pass over what comes in the place of what was lost."""
    http = beside.house.http
    for name in ("skipped", "sought", "cleared"):
        client = await beside.subscribed(name, initialPosition=CommandSubscribe.Earliest)
        await messages(client, DURABLE)
        await client.close()
    assert (await http.post(f"{REST}/subscription/skipped/skip_all")).status_code == 204
    latest = {"ledgerId": (1 << 63) - 1, "entryId": (1 << 63) - 1}
    assert (await http.post(f"{REST}/subscription/sought/resetcursor", json=latest)).status_code == 204
    cleared = await http.post("/admin/v2/namespaces/public/default/clearBacklog/cleared")
    assert cleared.status_code == 204
    assert (await http.put(f"{REST}/subscription/made", json=latest)).status_code == 204
    cursors = (await http.get(f"{REST}/internalStats")).json()["cursors"]
    place = f"{beside.last.ledgerId}:{beside.last.entryId}"
    assert {name: cursors[name]["markDeletePosition"] for name in cursors} == dict.fromkeys(
        ("skipped", "sought", "cleared", "made"), place
    )
    await beside.becomes_durable()
    client = await beside.subscribed("cleared")
    assert await messages(client, 1) == [b"text2"]


async def test_the_admin_rest_tells_of_what_is_durable(beside: Beside) -> None:
    http = beside.house.http

    async def told() -> tuple[str, str, int, int]:
        stats = (await http.get(f"{REST}/internalStats")).json()
        entry = f"{REST}/ledger/{beside.last.ledgerId}/entry/{beside.last.entryId + 1}"
        return (
            stats["lastConfirmedEntry"],
            stats["properties"]["nextOffset"],
            (await http.get(entry)).status_code,
            (await http.get(f"{REST}/examinemessage", params={"messagePosition": WRITTEN})).status_code,
        )

    ledger_id, entry_id = beside.last.ledgerId, beside.last.entryId
    assert await told() == (f"{ledger_id}:{entry_id}", str(DURABLE), 404, 404)
    newest = await http.get(f"{REST}/examinemessage", params={"initialPosition": "latest"})
    assert newest.content == b"text1"
    await beside.becomes_durable()
    assert await told() == (f"{ledger_id}:{entry_id + 1}", str(WRITTEN), 200, 200)
    newest = await http.get(f"{REST}/examinemessage", params={"initialPosition": "latest"})
    assert newest.content == b"text2"


async def test_a_topic_is_truncated_up_to_what_is_durable(beside: Beside) -> None:
    assert (await beside.house.http.delete(f"{REST}/truncate")).status_code == 204
    assert beside.log.log_start_offset == DURABLE
    await beside.becomes_durable()
    client = await beside.subscribed(initialPosition=CommandSubscribe.Earliest)
    assert await messages(client, 1) == [b"text2"]


async def test_a_place_that_is_not_durable_yet_is_the_end(beside: Beside) -> None:
    client = await beside.subscribed(initialPosition=CommandSubscribe.Earliest)
    await messages(client, DURABLE)
    seek = BaseCommand(type=BaseCommand.SEEK)
    seek.seek.consumer_id = 1
    seek.seek.request_id = 8
    seek.seek.message_id.ledgerId = beside.last.ledgerId
    seek.seek.message_id.entryId = beside.last.entryId + 2
    client.say(seek)
    while (await soon(client.hear()))[0].type != BaseCommand.SUCCESS:
        pass
    await asyncio.sleep(0)
    cursors = (await beside.house.http.get(f"{REST}/internalStats")).json()["cursors"]
    assert cursors["s"]["markDeletePosition"] == f"{beside.last.ledgerId}:{beside.last.entryId}"
    await beside.becomes_durable()
