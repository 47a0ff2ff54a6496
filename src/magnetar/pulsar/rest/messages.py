"""Messages (entries, as Pulsar's admin counts) looked at: by their place, by their time, from either end."""

from __future__ import annotations

from contextlib import suppress

from magnetar.ledger.errors import LedgerNotFound
from magnetar.ledger.port import Position, StoredEntry
from magnetar.logs.decided import aborted_among
from magnetar.pulsar.dispatch.deliveries import Deliveries, Delivery
from magnetar.pulsar.rest.message_headers import headers_of, payload_at
from magnetar.pulsar.rest.request import AdminRequest, Reply, RequiredLevel, RestError, RestRoute
from magnetar.pulsar.rest.subscriptions import message_id, nth_open
from magnetar.pulsar.rest.topics import one
from magnetar.pulsar.topic import PulsarTopic
from magnetar.records.compression import Buffer
from magnetar.records.pulsar_compression import decompress_payload


async def peek(ask: AdminRequest) -> Reply:
    """Return the nth message (entry) that a subscription has not acknowledged, without acknowledging it.

    Pulsar makes a subscription that is not there, and it begins at the topic's start: its messages are shown here, and
    nothing is made, for it would keep them from then on.
    """
    topic, number = await one(ask), max(ask.number("position"), 1)
    subscription = topic.subscriptions.get(ask.path["subscription"])
    entry = await nth_open(topic, subscription, number, exactly=True)
    if entry is None:
        raise RestError(404, "Message not found")
    return await _message(topic, entry)


async def message(ask: AdminRequest) -> Reply:
    """Return the message (entry) at a ledger and an entry id."""
    topic = await one(ask)
    return await _message(topic, await _entry(topic, ask.number("ledger"), ask.number("entry")))


async def examine(ask: AdminRequest) -> Reply:
    """Return the nth message (entry) from the topic's beginning or end."""
    topic = await one(ask)
    number, at_start = (
        max(ask.number("messagePosition", 1), 1),
        ask.query.get("initialPosition") == "earliest",
    )
    end = await topic.places.end()
    there = [
        (each.ledger_id, end.entry_id if each.ledger_id == end.ledger_id else each.entries)
        for each in topic.log.ledgers()
        if each.ledger_id <= end.ledger_id
    ]
    place = number - 1 if at_start else sum(entries for _, entries in there) - number
    for ledger_id, entries in there:
        if 0 <= place < entries:
            return await _message(topic, await _entry(topic, ledger_id, place))
        place -= entries
    raise RestError(404, "Could not examine messages: there are not so many")


async def id_at(ask: AdminRequest) -> dict[str, int]:
    """Return the id of the first message published at that time (ms) or later."""
    topic = await one(ask)
    position = await topic.places.at(ask.number("timestamp"))
    return {"ledgerId": position.ledger_id, "entryId": position.entry_id, "partitionIndex": topic.partition}


async def last_message_id(ask: AdminRequest) -> dict[str, int]:
    """Return the id of the topic's last message."""
    topic = await one(ask)
    entry = await topic.places.last_entry()
    if entry is None:
        return {"ledgerId": -1, "entryId": -1, "partitionIndex": topic.partition}
    (delivery,) = await Deliveries(0).deliveries([entry])
    found = {"ledgerId": entry.ledger_id, "entryId": entry.entry_id, "partitionIndex": topic.partition}
    if not delivery.metadata.HasField("num_messages_in_batch"):
        return found
    return found | {"batchIndex": delivery.messages - 1, "batchSize": delivery.messages}


async def backlog_size(ask: AdminRequest) -> Reply:
    """Return how many bytes lie behind a message id."""
    topic = await one(ask)
    ledger_id, entry_id = message_id(ask.json()) or (-1, -1)
    return Reply(str(topic.places.bytes_behind(Position(ledger_id, max(entry_id, 0) - 1))).encode())


async def _entry(topic: PulsarTopic, ledger_id: int, entry_id: int) -> StoredEntry:
    with suppress(LedgerNotFound):
        found = await topic.log.entry(Position(ledger_id, entry_id))
        if found.last_offset < topic.log.high_watermark:
            return found
    raise RestError(404, "Message not found: the ledger or the entry is not there")


async def _message(topic: PulsarTopic, entry: StoredEntry) -> Reply:
    """Lay an entry out as Pulsar's admin does: its payload, not compressed, and headers that describe it."""
    (delivery,) = await Deliveries(0).deliveries([entry])
    uncommitted = entry.last_offset >= topic.log.last_stable_offset
    aborted = not uncommitted and bool(await aborted_among(topic.log, [entry]))
    headers = headers_of(entry, delivery, uncommitted=uncommitted, aborted=aborted)
    return Reply(bytes(_payload(delivery)), "application/octet-stream", headers)


def _payload(delivery: Delivery) -> Buffer:
    payload, metadata = memoryview(delivery.body)[payload_at(delivery) :], delivery.metadata
    if not metadata.compression or metadata.encryption_keys:
        return payload
    return decompress_payload(int(metadata.compression), payload, metadata.uncompressed_size)


_ROOT = "/persistent/{tenant}/{namespace}/{topic}"
ROUTES = (
    RestRoute(
        "GET", f"{_ROOT}/subscription/{{subscription}}/position/{{position}}", peek, RequiredLevel.consume
    ),
    RestRoute("GET", f"{_ROOT}/ledger/{{ledger}}/entry/{{entry}}", message, RequiredLevel.consume),
    RestRoute("GET", f"{_ROOT}/examinemessage", examine, RequiredLevel.consume),
    RestRoute("GET", f"{_ROOT}/messageid/{{timestamp}}", id_at, RequiredLevel.consume),
    RestRoute("GET", f"{_ROOT}/lastMessageId", last_message_id, RequiredLevel.consume),
    RestRoute("PUT", f"{_ROOT}/backlogSize", backlog_size, RequiredLevel.consume),
)
