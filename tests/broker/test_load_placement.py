"""A bundle that nobody has had yet goes to the broker with least to do, by what brokers report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from magnetar.cluster.cluster_ownership import ClusterOwnership
from magnetar.cluster.load_placement import MARGIN, NEW_BUNDLE, OVERLOADED, BrokerScore, least_loaded
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.serving.listeners import Endpoint

BUNDLES = 32


def told(rate: float, usage: float = 5.0, bundles: int = 0) -> Mapping[str, Any]:
    return {"msgRateIn": rate / 2, "msgRateOut": rate / 2, "cpu": {"usage": usage}, "numBundles": bundles}


def test_a_score_counts_what_was_given_since_the_report() -> None:
    assert BrokerScore.of(1, told(1000, bundles=2), 2) == BrokerScore(1, 1000, 5.0)
    assert BrokerScore.of(1, told(1000, bundles=2), 5) == BrokerScore(1, 1000 + 3 * NEW_BUNDLE, 5.0)
    assert BrokerScore.of(1, told(1000, bundles=9), 5) == BrokerScore(1, 1000, 5.0)  # it gave some away
    assert BrokerScore.of(1, {"nodeId": 1}, 5) is None


@pytest.mark.parametrize(
    ("rates", "goes_to"),
    [
        ({1: (0, 5), 2: (0, 5)}, 1),
        ({1: (MARGIN, 5), 2: (0, 5)}, 1),
        ({1: (MARGIN + 1, 5), 2: (0, 5)}, 2),
        ({1: (5000, 5), 2: (4000, 5), 3: (3000, 5)}, 3),
        ({1: (0, OVERLOADED + 1), 2: (9000, 5)}, 2),
        ({1: (9000, 5), 2: (0, OVERLOADED + 1)}, 1),
        ({1: (9000, 99), 2: (0, 99)}, 1),  # where all have too much the hash decides
        ({2: (0, 5)}, 1),  # whose load nobody knows
    ],
)
def test_who_gets_it(rates: dict[int, tuple[float, float]], goes_to: int) -> None:
    assert (
        least_loaded(1, [BrokerScore(node, rate, usage) for node, (rate, usage) in rates.items()]) == goes_to
    )


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110 - what changes tells nobody
            await asyncio.sleep(0.01)


async def owners(reports: Mapping[int, Mapping[str, Any]]) -> dict[int, int]:
    """Return how many of a new namespace's bundles each of three brokers has in the end."""
    tree = MemoryTree()
    made = [ClusterOwnership(MemoryStore(tree), "c", number, None, BUNDLES, 4.0) for number in reports]
    wanted: list[str] = []
    try:
        for each in made:
            await each.start()
            each.listens("http", Endpoint("127.0.0.1", 8000 + each.node_id))
        for each in made:
            await each.begin(lambda: wanted)
        for each in made:
            await each.report(reports[each.node_id])
        await until(
            lambda: all(
                {n: "msgRateIn" in told for n, told in each.loads.items()} == dict.fromkeys(reports, True)
                for each in made
            )
        )
        wanted.append("public/new")
        await until(lambda: sum(len(each.mine()) for each in made) == BUNDLES)
        return {each.node_id: len(each.mine()) for each in made}
    finally:
        for each in made:
            await each.close()


async def test_new_bundles_go_to_those_with_least_to_do() -> None:
    has = await owners({1: told(50_000), 2: told(0), 3: told(0)})
    assert has[1] == 0
    assert abs(has[2] - has[3]) <= 2 * MARGIN / NEW_BUNDLE


async def test_among_idle_brokers_the_hash_decides_and_all_get_some() -> None:
    has = await owners({1: told(0), 2: told(0), 3: told(0)})
    assert min(has.values()) > 0


async def test_a_bundle_that_has_had_an_owner_is_taken_by_whom_the_hash_says() -> None:
    """What a dead broker leaves is taken at once: nobody waits for anybody."""
    tree = MemoryTree()
    first = ClusterOwnership(MemoryStore(tree), "c", 1, None, BUNDLES, 4.0)
    second = ClusterOwnership(MemoryStore(tree), "c", 2, None, BUNDLES, 4.0)
    for each in (first, second):
        await each.start()
        each.listens("http", Endpoint("127.0.0.1", 8000 + each.node_id))
    await first.begin(lambda: ["public/old"])
    await until(lambda: len(first.mine()) == BUNDLES)
    await second.begin(lambda: ["public/old"])
    await first.report(told(0, bundles=BUNDLES))
    await second.report(told(50_000))
    await until(lambda: second.mine() != [])  # its part, though it has much to do
    await first.close()
    await until(lambda: len(second.mine()) == BUNDLES)
    await second.close()
