"""Bundles are meant for brokers as evenly as it goes, and few of them move: properties of a function."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from magnetar.cluster.even_placement import Partitions, evenly
from magnetar.cluster.ownership import HASHES, Bundle

NODES = st.lists(st.integers(1, 40), min_size=1, max_size=7, unique=True)
COUNTS = st.integers(1, 40)


def cut(count: int, namespace: str = "public/default") -> list[Bundle]:
    return [
        Bundle(namespace, *pair) for pair in pairwise(HASHES * each // count for each in range(count + 1))
    ]


def has(owners: Mapping[Bundle, int], nodes: list[int]) -> list[int]:
    counted = Counter(owners.values())
    assert set(counted) <= set(nodes)
    return [counted[node] for node in nodes]


@given(COUNTS, NODES)
def test_no_broker_has_more_than_its_share(count: int, nodes: list[int]) -> None:
    meant = evenly(cut(count), nodes, {}, {}, {})
    assert len(meant) == count
    found = has(meant, nodes)
    assert max(found) == -(-count // len(nodes))
    assert min(found) == count // len(nodes)
    assert meant == evenly(cut(count), reversed(nodes), {}, {}, {}), (
        "who asks in another order is told the same"
    )
    assert evenly(cut(count), nodes, meant, {}, {}) == meant, "what is even stays"


@given(COUNTS, NODES, st.data())
def test_no_more_moves_than_are_needed(count: int, nodes: list[int], data: st.DataObject) -> None:
    bundles = cut(count)
    owners = {each: data.draw(st.sampled_from([*nodes, 99])) for each in bundles}
    meant = evenly(bundles, nodes, owners, {}, {})
    found = has(meant, nodes)
    assert max(found) - min(found) <= 1
    moved = sum(owners[each] != node for each, node in meant.items() if owners[each] in nodes)
    # Whoever has more than the upper share gives that away; what it takes to fill others up is no more than they lack.
    upper, lower = -(-count // len(nodes)), count // len(nodes)
    had = Counter(owners.values())
    needed = max(
        sum(max(0, had[node] - upper) for node in nodes),
        sum(max(0, lower - had[node]) for node in nodes) - had[99],
    )
    assert moved <= needed


@given(COUNTS, st.lists(st.integers(1, 40), min_size=2, max_size=7, unique=True))
def test_a_broker_that_dies_and_comes_back(count: int, nodes: list[int]) -> None:
    bundles = cut(count)
    before = evenly(bundles, nodes, {}, {}, {})
    gone, left = nodes[0], nodes[1:]
    without = evenly(bundles, left, before, {}, {})
    assert all(without[each] == node for each, node in before.items() if node != gone), (
        "only what it had moves"
    )
    again = evenly(bundles, nodes, without, {}, {})
    found = has(again, nodes)
    assert max(found) - min(found) <= 1, "it gets its share, and not what it once had"
    assert sum(again[each] != without[each] for each in bundles) == Counter(again.values())[gone]


@given(
    st.integers(1, 16),
    NODES,
    st.lists(st.lists(st.integers(0, 15), min_size=1, max_size=12, unique=True), max_size=3),
)
def test_partitions_of_one_topic_are_spread(count: int, nodes: list[int], lie_in: list[list[int]]) -> None:
    """Where each bundle has one partition at most, no broker has more of a topic than its share."""
    bundles = cut(count)
    for places in lie_in:
        some = [bundles[each] for each in places if each < count]
        partitions: Partitions = {each: {"t": 1} for each in some}
        meant = evenly(bundles, nodes, {}, {}, partitions)
        found = has({each: meant[each] for each in some}, nodes)
        assert max(found) - min(found) <= 1
        before = evenly(bundles, nodes, {}, {}, {})
        assert evenly(bundles, nodes, before, {}, partitions) == before, "a new topic moved a bundle"


def test_the_demo_of_eight_partitions_on_three_brokers() -> None:
    """It ended with 6, 2 and 0, and gave all six back to the broker that had died."""
    bundles = cut(16)
    partitions: Partitions = {bundles[2 * each]: {"sales": 1} for each in range(8)}
    owners = evenly(bundles, [1, 2, 3], {}, {}, partitions)
    of_topic = [owners[each] for each in partitions]
    assert sorted(Counter(of_topic).values()) == [2, 3, 3]
    left = evenly(bundles, [1, 3], owners, {}, partitions)
    assert sorted(Counter(left[each] for each in partitions).values()) == [4, 4]
    back = evenly(bundles, [1, 2, 3], left, {}, partitions)
    assert sorted(Counter(back[each] for each in partitions).values()) == [2, 3, 3]
    assert sorted(Counter(back.values()).values()) == [5, 5, 6]


def test_a_bundle_with_much_in_it_is_not_moved_for_little() -> None:
    """The offsets' 50 partitions in four bundles: 25, 12 and 13 stay, and what is lopsided does not."""
    bundles = cut(4)
    partitions: Partitions = dict(zip(bundles, ({"offsets": each} for each in (12, 13, 12, 13)), strict=True))
    owners = dict(zip(bundles, (1, 1, 2, 3), strict=True))
    assert evenly(bundles, [1, 2, 3], owners, {}, partitions) == owners
    lopsided = dict(zip(bundles, (1, 1, 1, 3), strict=True))
    assert sorted(Counter(evenly(bundles, [1, 2, 3], lopsided, {}, partitions).values()).values()) == [
        1,
        1,
        2,
    ]


@given(COUNTS, NODES, st.data())
def test_what_was_done_is_not_undone(count: int, nodes: list[int], data: st.DataObject) -> None:
    """Whatever lies where: once all is as it is meant, nothing is meant otherwise, or bundles would move for ever."""
    bundles = cut(count)
    sizes = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 30), max_size=3)
    partitions: Partitions = {each: data.draw(sizes) for each in bundles}
    owners = {each: data.draw(st.sampled_from([*nodes, 99])) for each in bundles}
    placed = data.draw(st.dictionaries(st.sampled_from(bundles), st.sampled_from([*nodes, 99]), max_size=3))
    meant = evenly(bundles, nodes, owners, placed, partitions)
    assert evenly(bundles, nodes, meant, placed, partitions) == meant


def test_what_was_placed_by_load_stays() -> None:
    bundles = cut(12)
    owners = evenly(bundles, [1, 2, 3], {}, {}, {})
    hot = [each for each in bundles if owners[each] == 1][:2]
    placed = dict.fromkeys(hot, 2)
    meant = evenly(bundles, [1, 2, 3], owners, placed, {})
    assert {each: meant[each] for each in hot} == placed
    assert all(meant[each] == owners[each] for each in bundles if each not in hot), "nothing undoes it"
    assert evenly(bundles, [1, 3], owners, placed, {}) == evenly(bundles, [1, 3], owners, {}, {}), "2 is gone"


@given(COUNTS, NODES)
def test_namespaces_of_one_bundle_each_are_spread_by_a_hash(count: int, nodes: list[int]) -> None:
    found = [evenly(cut(1, f"t/{each}"), nodes, {}, {}, {}).popitem()[1] for each in range(10 * count)]
    if count > 30:
        assert set(found) == set(nodes)
