"""Whose a transactional id is: others neither see it nor take it, unless an ACL says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, ResourceType

from magnetar.admin.client import ask
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.describe_transactions_request import DescribeTransactionsRequest
from magnetar.wire.kafka.messages.init_producer_id_request import InitProducerIdRequest
from magnetar.wire.kafka.messages.list_transactions_request import ListTransactionsRequest
from tests.hostile.client import Wire
from tests.process import BrokerProcess
from tests.security.conftest import say
from tests.security.signing import token
from tests.security.test_acls import binding, client, drop, make, started, topic
from tests.transactions.clients import in_transaction, producer

DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with started(tmp_path_factory.mktemp("ids") / "data") as process:
        yield process
        assert not [line for line in process.log_lines() if "Traceback" in line]


@contextmanager
def wire_as(house: BrokerProcess, role: str) -> Iterator[Wire]:
    with Wire(house.host_and_port) as wire:
        assert say(wire, f"token:{token(role)}").error_code == 0  # type: ignore[attr-defined]
        yield wire


def may_produce(house: BrokerProcess, *roles: str) -> str:
    """Return a new topic that these may produce to."""
    name = topic(house, f"of-{'-'.join(roles)}")
    for role in roles:
        ask(house.data, "grant", target=name, role=role, actions=["produce"])
    return name


def init(wire: Wire, transactional_id: str) -> int:
    asked = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    return int(wire.ask(asked, 4).error_code)


def seen(wire: Wire, transactional_id: str) -> tuple[bool, int]:
    """Tell whether an id is listed, and how it is described."""
    listed = wire.ask(ListTransactionsRequest(), 1).transaction_states
    described = wire.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
    return transactional_id in [each.transactional_id for each in listed], described.transaction_states[
        0
    ].error_code


def test_an_idle_id_of_anothers_is_neither_seen_nor_fenced(house: BrokerProcess) -> None:
    name = may_produce(house, "anna", "boris")
    annas = producer(house.address, "annas", **client(house, "anna"))
    in_transaction(annas, name, [b"1"])
    with wire_as(house, "boris") as boris, wire_as(house, "root") as root, wire_as(house, "anna") as anna:
        assert seen(boris, "annas") == (False, DENIED)
        assert init(boris, "annas") == DENIED
        assert seen(anna, "annas") == (True, 0)
        assert seen(root, "annas") == (True, 0)
    with pytest.raises(KafkaException) as caught:
        producer(house.address, "annas", **client(house, "boris"))
    assert caught.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    in_transaction(annas, name, [b"2"])  # it was not fenced


def test_whose_an_id_is_outlives_the_broker(tmp_path: Path) -> None:
    with started(tmp_path / "data") as house:
        name = may_produce(house, "anna", "boris")
        in_transaction(producer(house.address, "annas", **client(house, "anna")), name, [b"1"])
        house.kill()
    with started(tmp_path / "data") as house, wire_as(house, "boris") as boris:
        while (code := init(boris, "annas")) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            pass
        assert code == DENIED
        with wire_as(house, "anna") as anna:
            assert init(anna, "annas") == 0


def test_an_operator_who_ends_a_transaction_takes_no_id_away(house: BrokerProcess) -> None:
    may_produce(house, "clara", "dora")
    with wire_as(house, "clara") as clara, wire_as(house, "dora") as dora, wire_as(house, "root") as root:
        assert init(clara, "claras") == 0
        assert init(root, "claras") == 0
        assert init(clara, "claras") == 0
        assert init(dora, "claras") == DENIED
        assert init(root, "roots") == 0
        assert init(dora, "roots") == DENIED


def test_an_id_of_a_role_that_may_nothing_any_more_is_free(house: BrokerProcess) -> None:
    name = may_produce(house, "emil", "fritz")
    with wire_as(house, "emil") as emil, wire_as(house, "fritz") as fritz:
        assert init(emil, "emils") == 0
        assert init(fritz, "emils") == DENIED
        ask(house.data, "revoke", target=name, role="emil")
        assert init(fritz, "emils") == 0


def test_an_acl_gives_an_id_to_whom_it_names_alone(house: BrokerProcess) -> None:
    """Also one that another role had, and before anybody had it."""
    may_produce(house, "gerd", "hugo", "ida")
    for name in ("gerds", "gerds-new"):
        make(house, binding(name, "gerd", AclOperation.WRITE, kind=ResourceType.TRANSACTIONAL_ID))
    with wire_as(house, "gerd") as gerd, wire_as(house, "hugo") as hugo, wire_as(house, "ida") as ida:
        assert init(hugo, "gerds-new") == DENIED
        assert init(gerd, "gerds") == 0
        assert init(hugo, "gerds") == DENIED
        assert init(ida, "idas") == 0
        assert init(gerd, "idas") == DENIED
        make(house, binding("idas", "gerd", AclOperation.WRITE, kind=ResourceType.TRANSACTIONAL_ID))
        assert init(gerd, "idas") == 0
        assert init(ida, "idas") == DENIED
    drop(house, "gerd")
