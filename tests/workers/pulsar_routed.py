"""A client of Pulsar's transactions that looks up who has what, as stock clients do: a connection to each worker."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace, TracebackType
from typing import Any, Self, TypeVar

from magnetar.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    CommandSubscribe,
    ServerError,
)
from tests.process import BrokerProcess
from tests.transactions.pulsar_client import ASSIGN, Client, Message, Place, Refused, Txn

PATIENCE_S = 60
_AGAIN = ServerError.TransactionCoordinatorNotFound, ServerError.ServiceNotReady
T = TypeVar("T")


class Routed:
    """All connections of one client; whatever breaks, a new one is to be made."""

    def __init__(self, house: BrokerProcess) -> None:
        self._first = _client(house.served["pulsar"][0].removeprefix("pulsar://"))
        self._by_address: dict[str, Client] = {}
        self._owners: dict[str, Client] = {}
        self._ids = iter(range(1, 1 << 30))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._first, *self._by_address.values()):
            each.__exit__(kind, error, trace)

    def address_of(self, topic: str) -> str:
        """Return the address of whoever has a topic."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            asked = BaseCommand(type=BaseCommand.LOOKUP)
            asked.lookupTopic.topic, asked.lookupTopic.request_id = topic, next(self._ids)
            said = self._first.answered(asked).lookupTopicResponse
            if said.response != CommandLookupTopicResponse.Failed:
                return str(said.brokerServiceUrl).removeprefix("pulsar://")
            assert time.monotonic() < until_s, said.message
            time.sleep(0.05)

    def owner(self, topic: str) -> Client:
        """Return the connection to whoever has a topic."""
        found = self._owners.get(topic)
        if found is None:
            address = self.address_of(topic)
            if address not in self._by_address:
                self._by_address[address] = _client(address)
            found = self._owners[topic] = self._by_address[address]
        return found

    def ask(self, topic: str, question: Callable[[Client], T]) -> T:
        """Return what whoever has a topic answers, and ask again while it is on its way, as stock clients do."""
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                return question(self.owner(topic))
            except Refused as refused:
                if refused.error not in _AGAIN or time.monotonic() > until_s:
                    raise
            self._owners.pop(topic, None)
            time.sleep(0.05)

    def begin(self, coordinator: int, timeout_ms: int = 600_000) -> Txn:
        return self.ask(_kept_by(coordinator), lambda client: client.begin(coordinator, timeout_ms))

    def add_topic(self, txn: Txn, *topics: str) -> None:
        self.ask(_kept_by(txn[0]), lambda client: client.add_topic(txn, *topics))

    def add_subscription(self, txn: Txn, topic: str, subscription: str) -> None:
        self.ask(_kept_by(txn[0]), lambda client: client.add_subscription(txn, topic, subscription))

    def end(self, txn: Txn, *, commit: bool = True) -> None:
        self.ask(_kept_by(txn[0]), lambda client: client.end(txn, commit=commit))

    def subscribe(self, topic: str, name: str) -> Subscribed:
        return self.ask(topic, lambda client: Subscribed(client, topic, name))

    def produce(self, topic: str, values: list[bytes], txn: Txn | None = None) -> None:
        self.owner(topic).produce(topic, values, txn)

    def produce_batch(self, topic: str, values: list[bytes], txn: Txn | None = None) -> None:
        self.owner(topic).produce_batch(topic, values, txn)


def _kept_by(coordinator: int) -> str:
    return f"{ASSIGN}-partition-{coordinator}"


class _Connection(Client):
    """One that is of no more use once the worker sends a producer or consumer away."""

    def _take_in(self, said: BaseCommand, data: bytes) -> bool:
        if said.type in (BaseCommand.CLOSE_PRODUCER, BaseCommand.CLOSE_CONSUMER):
            raise EOFError("it is to be looked up again")
        return super()._take_in(said, data)


def _client(address: str) -> Client:
    served: Any = SimpleNamespace(served={"pulsar": [address]})
    return _Connection(served)


class Subscribed:
    """A consumer of a Shared subscription, on the connection to whoever has the topic."""

    def __init__(self, client: Client, topic: str, name: str) -> None:
        self._client = client
        self._id = client.subscribe(topic, name, CommandSubscribe.Shared)

    def receive(self, seconds: float) -> Message | None:
        return self._client.receive(self._id, seconds)

    def acknowledge(self, *places: Place, txn: Txn) -> None:
        self._client.acknowledge(self._id, *places, txn=txn)

    def close(self) -> None:
        self._client.close_consumer(self._id)
