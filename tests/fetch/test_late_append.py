"""An append that lands while a fetch's first read waits for the disk is answered at once, not when the time is up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.kafka.context import Software
from magnetar.kafka.handlers import fetch as fetching
from magnetar.kafka.handlers.fetch import fetch
from magnetar.kafka.login import AuthenticationRequired
from magnetar.kafka.partitions.partition import Partition
from magnetar.kafka.request_figures import Requests
from magnetar.ledger.memory import MemoryEngine
from magnetar.ledger.port import LedgerPolicy
from magnetar.serving.fetch_sessions import FetchedPartition
from magnetar.serving.wakeups import Wakeups
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest
from tests.accounts import account
from tests.ledger.entries import append, batch, prepared

FAR_TOO_LONG_MS = 200_000


class SlowToRead(Partition):
    """Its first read takes a while, and ``meanwhile`` something happens."""

    __slots__ = ("meanwhile",)
    meanwhile: Callable[[], Any]

    async def read(self, offset: int, max_bytes: int, *, committed: bool = False) -> Any:
        found = await super().read(offset, max_bytes)
        await asyncio.sleep(0)
        self.meanwhile()
        self.meanwhile = lambda: None
        return found


async def test_an_append_during_the_first_read_is_not_missed() -> None:
    engine = MemoryEngine()
    log = await prepared(await engine.open("public/default/persistent/t-partition-0", LedgerPolicy()))
    topic: Any = SimpleNamespace(config=None, internal=False)
    partition = SlowToRead(topic, 0, log, lambda: 0)
    partition.meanwhile = lambda: append(log, batch(b"late"))
    ask = FetchedPartition(
        "t", bytes(16), FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    )
    context: Any = SimpleNamespace(
        access=None,
        account=None,
        login=None,
        software=Software(),
        kafka=SimpleNamespace(
            fetch_sessions=SimpleNamespace(resolve=lambda request, named, owner: (None, [ask], 0)),
            partitions=SimpleNamespace(ahead=None, opened=lambda name, topic_id, index: partition),
            broker=SimpleNamespace(settings=Settings(), serving=SimpleNamespace(memory=account().budget)),
            wakeups=Wakeups(),
            requests=Requests(),
            reads=None,
            quotas=SimpleNamespace(enabled=False),
        ),
    )
    request = FetchRequest(max_wait_ms=FAR_TOO_LONG_MS, min_bytes=1, max_bytes=1 << 20, session_epoch=-1)
    answer = await asyncio.wait_for(fetch(request, context), 60)
    assert answer.responses[0].partitions[0].records
    await engine.close()


async def parked(**named: Any) -> tuple[Any, Any, Any]:
    """Return a fetch that waits at the end of a log, the log, and its engine."""
    engine = MemoryEngine()
    log = await prepared(await engine.open("public/default/persistent/t-partition-0", LedgerPolicy()))
    topic: Any = SimpleNamespace(config=None, internal=False)
    partition = Partition(topic, 0, log, lambda: 0)
    ask = FetchedPartition(
        "t", bytes(16), FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    )
    context: Any = SimpleNamespace(
        access=named.get("access"),
        account=None,
        login=named.get("login"),
        software=Software(),
        kafka=SimpleNamespace(
            fetch_sessions=SimpleNamespace(resolve=lambda request, named, owner: (None, [ask], 0)),
            partitions=SimpleNamespace(ahead=None, opened=lambda name, topic_id, index: partition),
            broker=SimpleNamespace(settings=Settings(), serving=SimpleNamespace(memory=account().budget)),
            wakeups=Wakeups(),
            requests=Requests(),
            reads=None,
            quotas=SimpleNamespace(enabled=False),
        ),
    )
    request = FetchRequest(max_wait_ms=FAR_TOO_LONG_MS, min_bytes=1, max_bytes=1 << 20, session_epoch=-1)
    task = asyncio.ensure_future(fetch(request, context))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    return task, log, engine


async def test_a_login_that_ended_meanwhile_brings_no_records() -> None:
    def ended(api_key: int) -> None:
        raise AuthenticationRequired("the session has ended")

    task, log, engine = await parked(login=SimpleNamespace(check=ended))
    append(log, batch(b"secret"))
    with pytest.raises(AuthenticationRequired):
        await asyncio.wait_for(task, 60)
    await engine.close()


async def test_a_grant_that_was_taken_back_meanwhile_brings_no_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    granted = [True]
    monkeypatch.setattr(fetching, "may_read", lambda *asked: granted[0])
    task, log, engine = await parked(access=object())
    granted.clear()
    granted.append(False)
    append(log, batch(b"secret"))
    (row,) = (await asyncio.wait_for(task, 60)).responses[0].partitions
    assert not row.records
    assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await engine.close()
