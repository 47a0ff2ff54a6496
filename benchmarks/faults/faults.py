"""What is done to the cluster. Each returns once the cluster is whole again, and says to whom it was done."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.faults.house import Disk, House, HurtBroker, HurtCluster
from benchmarks.faults.relay import Relay
from tests.cluster.rest import ask, bundles

Act = Callable[[House, random.Random], str]
AWAY_S = 5.0
"""How long a bookie that was killed stays away."""
LESS, MORE, AWAY = 0.5, 3.0, 2.5
"""Of a session: what does not end it, what does, and how long a broker that was killed stays away."""


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    name: str
    act: Act
    planned: bool = False
    """Whether it is what whoever runs brokers does, and not what befalls them."""
    can: Callable[[House], bool] = lambda _: True
    """Whether this machine has what it needs."""


def _nothing(_: House, __: random.Random) -> str:
    time.sleep(AWAY_S)
    return "nobody"


def _restart_broker(end: Callable[[HurtBroker], None], away: float = 0.0) -> Act:
    def act(house: House, dice: random.Random) -> str:
        broker = dice.choice(house.brokers)
        end(broker)
        time.sleep(away * house.session_s)
        broker.start()
        return f"broker {broker.number}"

    return act


def _stop_broker(sessions: float) -> Act:
    def act(house: House, dice: random.Random) -> str:
        broker = dice.choice(house.brokers)
        broker.send(signal.SIGSTOP)
        time.sleep(sessions * house.session_s)
        broker.send(signal.SIGCONT)
        return f"broker {broker.number}"

    return act


def _kill_bookie(house: House, dice: random.Random) -> str:
    number = dice.randrange(len(house.cluster.bookies))
    bookie = house.cluster.bookies[number]
    bookie.kill()
    time.sleep(AWAY_S)
    bookie.start()
    return f"bookie {number + 1}"


def _stop_bookie(house: House, dice: random.Random) -> str:
    number = dice.randrange(len(house.cluster.bookies))
    bookie = house.cluster.bookies[number]
    bookie.send(signal.SIGSTOP)
    time.sleep(AWAY_S)
    bookie.send(signal.SIGCONT)
    return f"bookie {number + 1}"


def _kill_bookies(house: House, _: random.Random) -> str:
    for each in house.cluster.bookies:
        each.kill()
    time.sleep(1)
    for each in house.cluster.bookies:
        each.start()
    return "all bookies"


def _stop_zookeeper(sessions: float) -> Act:
    def act(house: House, _: random.Random) -> str:
        house.cluster.zookeeper.send(signal.SIGSTOP)
        time.sleep(sessions * house.session_s)
        house.cluster.zookeeper.send(signal.SIGCONT)
        return "ZooKeeper"

    return act


def _kill_zookeeper(house: House, _: random.Random) -> str:
    house.cluster.zookeeper.kill()
    time.sleep(1)
    house.cluster.zookeeper.start()
    return "ZooKeeper"


def _part_from_zookeeper(sessions: float) -> Act:
    def act(house: House, dice: random.Random) -> str:
        broker = dice.choice(house.brokers)
        broker.zookeeper_relay.cut() if dice.random() < 0.5 else broker.zookeeper_relay.hold()
        time.sleep(sessions * house.session_s)
        broker.zookeeper_relay.mend()
        return f"broker {broker.number}"

    return act


def _break_connections(house: House, dice: random.Random) -> str:
    broker = dice.choice(house.brokers)
    for _ in range(3):
        broker.relay.break_all()
        broker.pulsar_relay.break_all()
        time.sleep(0.5)
    return f"broker {broker.number}"


def _hold_clients(house: House, dice: random.Random) -> str:
    broker = dice.choice(house.brokers)
    both = (broker.relay, broker.pulsar_relay)
    for each in both:
        each.hold()
    time.sleep(3)
    for each in both:
        each.break_all()
        each.mend()
    return f"broker {broker.number}"


def _unload(house: House, dice: random.Random) -> str:
    broker = dice.choice(house.brokers)
    bundle = dice.choice(bundles(broker))
    ask(broker, "PUT", f"namespaces/public/default/{bundle}/unload")
    return f"bundle {bundle}"


def _move(house: House, dice: random.Random) -> str:
    asked, target = dice.sample(house.brokers, 2)
    bundle = dice.choice(bundles(asked))
    ask(
        asked,
        "PUT",
        f"namespaces/public/default/{bundle}/unload?destinationBroker=127.0.0.1:{target.http}",
    )
    return f"bundle {bundle} to broker {target.number}"


def _split(house: House, dice: random.Random) -> str:
    broker = dice.choice(house.brokers)
    found = bundles(broker)
    if len(found) > 32:
        return _unload(house, dice)
    bundle = dice.choice(found)
    ask(broker, "PUT", f"namespaces/public/default/{bundle}/split?unload=true")
    return f"bundle {bundle}"


def _roll(house: House, dice: random.Random) -> str:
    order: list[HurtBroker] = dice.sample(house.brokers, len(house.brokers))
    for each in order:
        each.end()
        each.start()
        time.sleep(AWAY_S)
    return "all brokers, one after the other"


def _kill_both(house: House, dice: random.Random) -> str:
    broker = dice.choice(house.brokers)
    number = dice.randrange(len(house.cluster.bookies))
    house.cluster.bookies[number].kill()
    broker.kill()
    time.sleep(AWAY_S)
    house.cluster.bookies[number].start()
    broker.start()
    return f"broker {broker.number} and bookie {number + 1}"


def _part(seconds: float, brokers: int, bookies: int) -> Act:
    """Have so many brokers and so many bookies not hear each other; both hear ZooKeeper and everybody else."""

    def act(house: House, dice: random.Random) -> str:
        some = dice.sample(house.brokers, brokers)
        numbers = dice.sample(range(len(house.cluster.bookies)), bookies)
        links = [broker.bookie_relays[number] for broker in some for number in numbers]
        cuts = dice.random() < 0.5
        for each in links:
            each.cut() if cuts else each.hold()
        time.sleep(seconds)
        for each in links:
            each.mend()
        return f"brokers {[each.number for each in some]}, bookies {[number + 1 for number in numbers]}"

    return act


def _slow(links: Callable[[House, random.Random], list[Relay]], late_s: float) -> Act:
    def act(house: House, dice: random.Random) -> str:
        some = links(house, dice)
        for each in some:
            each.slow(late_s)
        time.sleep(2 * AWAY_S)
        for each in some:
            each.mend()
        return f"{len(some)} links"

    return act


def _to_bookie(house: House, dice: random.Random) -> list[Relay]:
    number = dice.randrange(len(house.cluster.bookies))
    return [each.bookie_relays[number] for each in house.brokers]


def _to_broker(house: House, dice: random.Random) -> list[Relay]:
    broker = dice.choice(house.brokers)
    return [broker.relay, broker.pulsar_relay]


def _to_zookeeper(house: House, _: random.Random) -> list[Relay]:
    return [each.zookeeper_relay for each in house.brokers]


def _part_bookie_from_zookeeper(house: House, dice: random.Random) -> str:
    assert house.hurt is not None
    number = dice.randrange(len(house.cluster.bookies))
    relay = house.hurt.zookeeper_relays[number]
    relay.cut() if dice.random() < 0.5 else relay.hold()
    time.sleep(AWAY * house.hurt.bookies_session_s)
    relay.mend()
    return f"bookie {number + 1}{_begin_again(house, number)}"


def _fill(disks: Callable[[HurtCluster], list[Disk]]) -> Act:
    def act(house: House, dice: random.Random) -> str:
        assert house.hurt is not None
        number = dice.randrange(len(house.cluster.bookies))
        disk = disks(house.hurt)[number]
        disk.fill()
        time.sleep(2 * AWAY_S)
        disk.empty()
        return f"bookie {number + 1}{_begin_again(house, number)}"

    return act


def _begin_again(house: House, number: int) -> str:
    """Start a bookie that ended by itself, as whoever supervises it would, and say so."""
    time.sleep(1)
    if not house.cluster.bookies[number].has_ended:
        return ""
    house.cluster.bookies[number].start()
    return ", which ended itself"


def _jump(house: House, dice: random.Random) -> str:
    assert house.jumper is not None
    far = dice.choice([-3600, -60, 60, 3600])
    house.jumper.jump(far)
    time.sleep(2 * AWAY_S)
    house.jumper.jump(0)
    return f"broker {house.jumper.number}, {far:+d} s"


def _kill_clients(house: House, dice: random.Random) -> str:
    client = dice.choice(house.clients)
    client.kill()
    return client.name


def _has_disks(house: House) -> bool:
    return house.hurt is not None and all(
        each.is_there for each in (*house.hurt.journals, *house.hurt.ledgers)
    )


def _has_clock(house: House) -> bool:
    return house.jumper is not None


FAULTS = [
    Fault("nothing, to compare with", _nothing),
    Fault(
        "kill -9 of a broker, which is away for two and a half sessions",
        _restart_broker(HurtBroker.kill, AWAY),
    ),
    Fault("kill -9 of a broker, started again at once", _restart_broker(HurtBroker.kill)),
    Fault("a broker stands still (SIGSTOP) for half its session", _stop_broker(LESS)),
    Fault("a broker stands still for three times its session", _stop_broker(MORE)),
    Fault("kill -9 of a bookie, which is away for 5 s", _kill_bookie),
    Fault("a bookie stands still for 5 s", _stop_bookie),
    Fault("kill -9 of all bookies at once", _kill_bookies),
    Fault("kill -9 of a broker and of a bookie at once", _kill_both),
    Fault("ZooKeeper stands still for half a session", _stop_zookeeper(LESS)),
    Fault("ZooKeeper stands still for three times as long as sessions last", _stop_zookeeper(MORE)),
    Fault("kill -9 of ZooKeeper, started again after 1 s", _kill_zookeeper),
    Fault("a broker and ZooKeeper are parted for half its session", _part_from_zookeeper(LESS)),
    Fault("a broker and ZooKeeper are parted for three times its session", _part_from_zookeeper(MORE)),
    Fault("a broker and a bookie are parted for 6 s", _part(6, 1, 1)),
    Fault("a broker and all bookies are parted for 6 s", _part(6, 1, 3)),
    Fault("a bookie and all brokers are parted for 6 s", _part(6, 3, 1)),
    Fault(
        "a bookie and ZooKeeper are parted for two and a half of its sessions", _part_bookie_from_zookeeper
    ),
    Fault("a bookie is slow for 10 s: each read's worth of bytes is 0.1 s late", _slow(_to_bookie, 0.1)),
    Fault("a broker is slow for 10 s, likewise", _slow(_to_broker, 0.1)),
    Fault("ZooKeeper is slow for 10 s, likewise", _slow(_to_zookeeper, 0.1)),
    Fault("a bookie's journal's disk is full for 10 s", _fill(lambda found: found.journals), can=_has_disks),
    Fault("a bookie's ledgers' disk is full for 10 s", _fill(lambda found: found.ledgers), can=_has_disks),
    Fault("a broker is killed and comes back without its disk", _restart_broker(HurtBroker.lose_disk)),
    Fault("a broker's clock jumps by a minute or an hour, and back after 10 s", _jump, can=_has_clock),
    Fault("kill -9 of a client that is a process of its own", _kill_clients),
    Fault("all connections to a broker are broken, three times", _break_connections),
    Fault("no byte to or from a broker for 3 s, then its connections are broken", _hold_clients),
    Fault("a bundle is unloaded", _unload, planned=True),
    Fault("a bundle is moved to another broker", _move, planned=True),
    Fault("a bundle is split", _split, planned=True),
    Fault("a broker ends in order and is started again", _restart_broker(HurtBroker.end), planned=True),
    Fault("a rolling restart", _roll, planned=True),
]
