"""Random clusters under random load: what is moved brings them together, is little, and comes to rest."""

from __future__ import annotations

import os
from random import Random

import pytest

from magnetar.cluster.load_shedding import BrokerLoad, BundleMove, LoadShedder, SheddingLimits
from magnetar.cluster.ownership import HASHES, Bundle

SEEDS = range(int(os.environ.get("MAGNETAR_SEEDS", "200")))
ROUND_S = 60.0


class World:
    """Bundles with their load, and who has them; brokers do what the leader says at once."""

    def __init__(self, seed: int, grace_s: float = 1800.0) -> None:
        self.random = Random(seed)
        brokers, count = self.random.randint(2, 9), self.random.randint(1, 120)
        step = HASHES // count
        self.bundles = [Bundle("t/n", at * step, (at + 1) * step) for at in range(count)]
        shape = self.random.choice([0.6, 1.2, 3.0])
        busy = self.random.choice([0.0, 20.0, 60.0]) * brokers
        drawn = {each: self.random.paretovariate(shape) for each in self.bundles}
        whole = sum(drawn.values())
        self.load = {each: busy * part / whole for each, part in drawn.items()}
        self.owner = {each: self.random.randrange(brokers) for each in self.bundles}
        self.brokers = list(range(brokers))
        self.limits = SheddingLimits(grace_s=grace_s)
        self.shedder = LoadShedder(self.limits)
        self.now_s = 0.0

    def usage(self, node: int) -> float:
        return sum(self.load[each] for each in self.bundles if self.owner[each] == node)

    def count(self, node: int) -> int:
        return sum(owner == node for owner in self.owner.values())

    def loads(self, noise: float = 0.0) -> list[BrokerLoad]:
        found = []
        for node in self.brokers:
            seen = 1 + self.random.uniform(-noise, noise)
            mine = {each: self.load[each] * seen for each in self.bundles if self.owner[each] == node}
            found.append(BrokerLoad(node, sum(mine.values()), mine))
        return found

    def round(self, noise: float = 0.0) -> list[BundleMove]:
        self.now_s += ROUND_S
        moves = self.shedder.moves(self.loads(noise), self.now_s)
        assert len(moves) <= self.limits.moves
        assert len({each.bundle for each in moves}) == len(moves)
        for each in moves:
            assert self.owner[each.bundle] == each.source != each.target
            self.owner[each.bundle] = each.target
        return moves

    def settle(self, noise: float = 0.0) -> list[BundleMove]:
        """Let rounds pass until nothing has moved for longer than a moved bundle stays."""
        every, quiet = [], 0
        while quiet <= self.limits.grace_s / ROUND_S:
            moves = self.round(noise)
            every += moves
            quiet = 0 if moves else quiet + 1
            assert len(every) <= 20 * len(self.bundles), "it never comes to rest"
        return every


@pytest.mark.parametrize("seed", SEEDS)
def test_brokers_come_together_and_then_nothing_moves(seed: int) -> None:
    world = World(seed)
    world.settle()
    average = sum(map(world.usage, world.brokers)) / len(world.brokers)
    for node in world.brokers:
        if world.usage(node) <= average + world.limits.threshold:
            continue
        # What is too much on a broker cannot be helped by a move: each of its bundles would be too much elsewhere.
        room = (world.usage(node) - min(map(world.usage, world.brokers))) / 2
        assert all(
            world.load[each] > room
            for each in world.bundles
            if world.owner[each] == node and world.load[each]
        )


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bundle_stays_where_it_was_moved_to_for_a_while(seed: int) -> None:
    world = World(seed)
    moved: dict[Bundle, float] = {}
    for _ in range(100):
        for each in world.round(noise=0.4):
            assert world.now_s - moved.get(each.bundle, -1e9) >= world.limits.grace_s
            moved[each.bundle] = world.now_s


@pytest.mark.parametrize("seed", SEEDS)
def test_noise_moves_nothing_in_a_cluster_that_is_even(seed: int) -> None:
    """Once all is at rest, readings that are up to 5 % off start nothing: that is what the threshold is for."""
    world = World(seed, grace_s=120.0)
    world.load = dict.fromkeys(
        world.bundles, 50.0 / len(world.bundles)
    )  # of one broker's whole power, all together
    world.settle()
    assert [move for _ in range(50) for move in world.round(noise=0.05)] == []


@pytest.mark.parametrize("seed", SEEDS)
def test_idle_brokers_get_as_many_bundles_each(seed: int) -> None:
    world = World(seed)
    world.load = dict.fromkeys(world.bundles, 0.0)
    world.settle()
    counts = list(map(world.count, world.brokers))
    assert max(counts) - min(counts) <= max(1, len(world.bundles) // len(world.brokers) // 10)


def test_a_broker_goes_on_to_shed_until_it_is_half_a_threshold_above() -> None:
    """Hysteresis: at 8 points above the average nothing begins, but what has begun goes on."""
    bundles = [Bundle("t/n", at, at + 1) for at in range(20)]

    def loads(first: float, second: float) -> list[BrokerLoad]:
        halves = bundles[:10], bundles[10:]
        return [
            BrokerLoad(number, usage, dict.fromkeys(mine, usage / 10))
            for number, usage, mine in zip((1, 2), (first, second), halves, strict=True)
        ]

    fresh = LoadShedder(SheddingLimits(moves=1))
    assert fresh.moves(loads(58, 42), 0) == []
    begun = LoadShedder(SheddingLimits(moves=1, grace_s=0))
    assert len(begun.moves(loads(70, 30), 0)) == 1
    assert len(begun.moves(loads(46, 54), 60)) == 1  # by what is remembered still 58 to 42


def test_what_goes_in_one_round_does_not_all_go_to_one_broker() -> None:
    bundles = [Bundle("t/n", at, at + 1) for at in range(9)]
    loads = [BrokerLoad(1, 90, dict.fromkeys(bundles, 10.0)), BrokerLoad(2, 0, {}), BrokerLoad(3, 1, {})]
    moves = LoadShedder(SheddingLimits(moves=4)).moves(loads, 0)
    assert sorted(each.target for each in moves) == [2, 2, 3, 3]
