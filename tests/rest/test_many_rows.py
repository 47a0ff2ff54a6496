"""Who asks the admin REST for very much waits for it, nobody else: it is found out and written in slices."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base import slices
from magnetar.cluster.ownership import SoleOwner
from magnetar.pulsar.rest import app, everywhere, non_persistent, stats
from tests.turns import of_others

PARTITIONS = 50
_KEYS = st.text() | st.integers()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(_KEYS, inner),
    max_leaves=20,
)


@pytest.fixture(autouse=True)
def a_turn_after_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "SLICE_S", -1.0)


@given(answer=JSON)
def test_what_is_written_in_slices_is_what_json_writes(answer: Any) -> None:
    assert asyncio.run(app._written(answer)) == json.dumps(answer, separators=(",", ":"))


@pytest.mark.parametrize(
    "within", [lambda rows: rows, lambda rows: {"partitions": rows}], ids=["whole", "within"]
)
@pytest.mark.parametrize("rows", [[1] * PARTITIONS, {str(number): 1 for number in range(PARTITIONS)}])
async def test_many_rows_are_written_in_turns(rows: Any, within: Any) -> None:
    with of_others() as turns:
        text = await app._written(within(rows))
    assert turns.count >= PARTITIONS
    assert json.loads(text) == within(rows)


@pytest.mark.parametrize("kind", [stats, non_persistent], ids=["persistent", "non-persistent"])
async def test_stats_of_many_partitions_are_found_in_turns(
    kind: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def get(name: Any, *, create: bool) -> str:
        return str(name)

    row = {"msgInCounter": 2, "publishers": ["p"], "subscriptions": {"s": {"msgBacklog": 3}}}
    topic = SimpleNamespace(name="persistent://a/b/t", partitions=PARTITIONS, partitioned=True)
    monkeypatch.setattr(kind, "found", lambda ask: topic)
    monkeypatch.setattr(kind, "topic_stats", lambda topic: row)
    monkeypatch.setattr(kind, "as_asked", lambda ask, found: found)
    ask = cast(Any, asked_of_one_broker(get))
    with of_others() as turns:
        found = await kind.partitioned_stats(ask)
    # Those of the rows, of their names, of their subscriptions, and of what these have.
    assert turns.count >= 4 * PARTITIONS
    assert (found["msgInCounter"], len(found["publishers"])) == (2 * PARTITIONS, PARTITIONS)
    assert found["subscriptions"] == {"s": {"msgBacklog": 3 * PARTITIONS}}
    assert len(found["partitions"]) == PARTITIONS


def asked_of_one_broker(get: Callable[..., Awaitable[str]]) -> SimpleNamespace:
    """A request about a topic, all of whose partitions the broker has, and opens by ``get``."""
    topics = SimpleNamespace(get=get, any=get, non_persistent=SimpleNamespace(get=get))
    services = SimpleNamespace(
        topics=topics, broker=SimpleNamespace(cluster=SimpleNamespace(ownership=SoleOwner(0)))
    )
    return SimpleNamespace(
        topic=SimpleNamespace(partition=None),
        services=services,
        flag=lambda name, default=False: default,
    )


async def test_many_partitions_are_opened_some_at_a_time() -> None:
    opening = most = 0

    async def get(name: Any, *, create: bool) -> str:
        nonlocal opening, most
        opening += 1
        most = max(most, opening)
        await asyncio.sleep(0)
        opening -= 1
        return str(name)

    async def name_of(ask: Any, name: Any) -> str:
        return str(name)

    names = [f"persistent://public/default/t-partition-{number}" for number in range(PARTITIONS)]
    topic = SimpleNamespace(name="persistent://public/default/t", partitions=PARTITIONS, partitioned=True)
    found = await everywhere.everywhere(cast(Any, asked_of_one_broker(get)), name_of, cast(Any, topic))
    assert found == {name: name for name in names}
    assert 1 < most <= everywhere._AT_ONCE
