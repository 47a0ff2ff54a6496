"""The brokers behind a bootstrap address, for an operator's orders: what the client says in an operator's words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from magnetar.admin import credentials
from magnetar.admin.errors import Invalid, Unreachable
from magnetar.admin.refusals import refusal
from magnetar.client import cluster
from magnetar.client.connection import Connection
from magnetar.client.errors import BrokerRefused, ClientError, NoConnection
from magnetar.client.settings import ClientSettings
from magnetar.wire.kafka.message import Message

Answer = TypeVar("Answer", bound=Message)
Address = tuple[str, int]

CLIENT_ID = "magnetar-cli"


def parse_address(text: str) -> Address:
    """Read ``HOST:PORT`` (an IPv6 host in brackets; the first of a list); raise `Invalid`."""
    host, _, port = text.split(",")[0].strip().removeprefix("PLAINTEXT://").rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Invalid(f"{text!r} is no address of a broker", "Write HOST:PORT, as in 127.0.0.1:9092.")
    return host.strip("[]"), int(port)


class ClusterAdmin:
    """Asks one question at a time, and never twice. Use it with ``with``; raises `AdminError` and its kinds."""

    def __init__(self, bootstrap: str, *, timeout_s: float = 10, credentials_in: Path | None = None) -> None:
        """``credentials_in`` names a file as `magnetar.admin.credentials` has it, instead of the one named there."""
        self.settings = ClientSettings(
            bootstrap=(parse_address(bootstrap),),
            client_id=CLIENT_ID,
            request_timeout_s=timeout_s,
            security=credentials.security(credentials_in),
        )
        self._cluster = cluster.Cluster(self.settings)

    def ask(self, request: Message, answer: type[Answer], *, most: int | None = None) -> Answer:
        """Return the bootstrap broker's answer; ``most`` is the highest version that the caller's fields fit."""
        with in_an_operators_words():
            return _ask(self._cluster.any_broker(), request, answer, most)

    def ask_node(self, node_id: int | None, request: Message, answer: type[Answer]) -> Answer:
        """Return the answer of the broker with a number; of any if that is None, or nobody knows of it."""
        with in_an_operators_words():
            return _ask(self._cluster.broker(node_id), request, answer, None)

    def ask_coordinator(
        self, key: str, request: Message, answer: type[Answer], *, most: int | None = None, key_type: int = 0
    ) -> Answer:
        """Return the answer of the broker that keeps a group, or with key type 1 a transactional id."""
        with in_an_operators_words():
            return _ask(self._cluster.coordinator(key, key_type), request, answer, most)

    def coordinator(self, group: str) -> int:
        """Return the number of the broker that keeps a group."""
        with in_an_operators_words():
            return self._cluster.find_coordinator(group).node_id

    def ask_all(
        self, request: Message, answer: type[Answer], *, most: int | None = None
    ) -> tuple[Answer, ...]:
        """Return the answers of all brokers that can be reached."""
        with in_an_operators_words():
            return tuple(_ask(each, request, answer, most) for each in self._cluster.brokers())

    def ask_leaders(
        self,
        partitions: Iterable[tuple[str, int]],
        request: Callable[[list[tuple[str, int]]], Message],
        answer: type[Answer],
    ) -> tuple[Answer, ...]:
        """Return the answers of the partitions' leaders; ``request`` returns what to ask one about some of them."""
        with in_an_operators_words():
            grouped = self._cluster.grouped(partitions)
            return tuple(_ask(leader, request(some), answer, None) for leader, some in grouped.items())

    def close(self) -> None:
        """Close all connections; the next question opens new ones."""
        self._cluster.close()

    def __enter__(self) -> ClusterAdmin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ask(connection: Connection, request: Message, answer: type[Answer], most: int | None) -> Answer:
    found = connection.call(request, max_version=most)
    assert isinstance(found, answer)
    return found


@contextmanager
def in_an_operators_words() -> Iterator[None]:
    """Raise what went wrong as an `AdminError` that says what to do next."""
    try:
        yield
    except BrokerRefused as error:
        raise refusal(error.code, error.message, error.what) from error
    except NoConnection as error:
        raise Unreachable(
            str(error),
            "Start one with 'magnetar standalone', or name it with --bootstrap-server or MAGNETAR_BOOTSTRAP_SERVER.",
        ) from error
    except ClientError as error:
        raise Unreachable(
            str(error),
            "Is it a Kafka listener, and does it ask for TLS or authentication? "
            f"{credentials.VARIABLE} names a file with security.protocol and so on. Look at the broker's log.",
        ) from error
