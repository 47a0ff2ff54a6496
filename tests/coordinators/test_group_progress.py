"""Groups that another broker coordinates: it is asked how it stands with them, and to move them."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.base.background import Background
from magnetar.base.errors import BrokerError
from magnetar.cluster.between_brokers import BetweenBrokers
from magnetar.cluster.ownership import Owned
from magnetar.coordination.progress import UNKNOWN, GroupIsActive, GroupStanding, Read
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.group_progress import GroupProgress
from magnetar.kafka.handlers.between_brokers import between_brokers
from magnetar.wire.kafka.between_brokers import BetweenBrokersRequest
from magnetar.wire.kafka.errors import ErrorCode

READ = Read("g", "t", 3)


class Elsewhere:
    """Broker 1, and what broker 2 answers, whose groups all are."""

    def __init__(self) -> None:
        self.owner: Owned | None = Owned(2, 1)
        self.asked: list[tuple[int, str, Any]] = []
        self.answers: list[dict[str, Any]] | Exception = []
        between = BetweenBrokers(lambda: False)
        between.way = self._ask
        broker = SimpleNamespace(
            background=Background(),
            cluster=SimpleNamespace(ownership=SimpleNamespace(node_id=1), between=between),
        )
        groups = SimpleNamespace(
            owner_of=lambda group: self.owner, describe=self._refuse, share_group=self._refuse
        )
        self.progress = GroupProgress(cast(Any, broker), cast(Any, groups))

    def _refuse(self, group: str) -> None:
        raise CoordinatorRefused(ErrorCode.NOT_COORDINATOR)  # as one that coordinates none does

    async def _ask(self, node_id: int, about: str, asked: bytes) -> bytes:
        self.asked.append((node_id, about, json.loads(asked)))
        if isinstance(self.answers, Exception):
            raise self.answers
        return json.dumps(self.answers).encode()


async def test_the_coordinator_is_asked_and_does_it() -> None:
    there = Elsewhere()
    there.answers = [{"is": [True, False, 17]}]
    assert await there.progress.look(READ) == GroupStanding(True, False, 17)
    there.answers = [{"is": None}]
    await there.progress.move(READ, 20, though_active=True)
    await there.progress.forget(READ)
    assert there.asked == [
        (2, "groups.look", [["g", "t", 3]]),
        (2, "groups.move", [["g", "t", 3, 20, True]]),
        (2, "groups.forget", [["g", "t", 3]]),
    ]


async def test_what_the_coordinator_refuses_is_refused() -> None:
    there = Elsewhere()
    there.answers = [{"error": "group g has members"}]
    with pytest.raises(GroupIsActive, match="group g has members"):
        await there.progress.move(READ, 20)
    with pytest.raises(GroupIsActive, match="group g has members"):
        await there.progress.forget(READ)
    assert await there.progress.look(READ) == UNKNOWN


async def test_a_group_whose_coordinator_is_silent_may_have_members() -> None:
    there = Elsewhere()
    there.answers = BrokerError("broker 2: it does not answer")
    assert await there.progress.look(READ) == UNKNOWN
    with pytest.raises(BrokerError, match="does not answer"):
        await there.progress.move(READ, 20)
    there.owner = None
    assert await there.progress.look(READ) == UNKNOWN
    assert UNKNOWN.is_active


@pytest.mark.parametrize(("brokers", "about"), [(1, "groups.look"), (2, "no.such")])
async def test_nobody_asks_a_broker_that_is_alone_nor_what_nobody_answers(brokers: int, about: str) -> None:
    async def answer(asked: object) -> str:
        return f"answered {asked}"

    between = BetweenBrokers(lambda: brokers == 1)
    between.answer("groups.look", lambda asked: asked, answer)
    context = cast(
        Any,
        SimpleNamespace(
            kafka=SimpleNamespace(broker=SimpleNamespace(cluster=SimpleNamespace(between=between)))
        ),
    )
    if brokers == 1:
        with pytest.raises(ConnectionAbortedError):
            await between_brokers(BetweenBrokersRequest(about, b"7"), context)
    else:  # it has no part in that: its settings or its version may be others
        assert (await between_brokers(BetweenBrokersRequest(about, b"7"), context)).answer == b""
        answered = await between_brokers(BetweenBrokersRequest("groups.look", b"7"), context)
        assert answered.answer == b'"answered 7"'
        with pytest.raises(ConnectionAbortedError):  # it takes the loop long to read
            await between_brokers(BetweenBrokersRequest("groups.look", b"7" + b" " * (2 << 20)), context)
