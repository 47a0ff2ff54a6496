"""What is done to the cluster. Each returns once the cluster is whole again, and says to whom it was done."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.faults.house import House, HurtBroker
from tests.cluster.rest import ask, bundles

Act = Callable[[House, random.Random], str]
AWAY_S = 5.0
"""How long whoever was killed stays away: longer than a session."""


@dataclass(frozen=True)
class Fault:
    """One kind of fault."""

    name: str
    act: Act
    planned: bool = False
    """Whether it is what whoever runs brokers does, and not what befalls them."""


def _nothing(_: House, __: random.Random) -> str:
    time.sleep(AWAY_S)
    return "nobody"


def _restart_broker(end: Callable[[HurtBroker], None], away_s: float = 0.0) -> Act:
    def act(house: House, dice: random.Random) -> str:
        broker = dice.choice(house.brokers)
        end(broker)
        time.sleep(away_s)
        broker.start()
        return f"broker {broker.number}"

    return act


def _stop_broker(seconds: float) -> Act:
    def act(house: House, dice: random.Random) -> str:
        broker = dice.choice(house.brokers)
        broker.send(signal.SIGSTOP)
        time.sleep(seconds)
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


def _stop_zookeeper(seconds: float) -> Act:
    def act(house: House, _: random.Random) -> str:
        house.cluster.zookeeper.send(signal.SIGSTOP)
        time.sleep(seconds)
        house.cluster.zookeeper.send(signal.SIGCONT)
        return "ZooKeeper"

    return act


def _kill_zookeeper(house: House, _: random.Random) -> str:
    house.cluster.zookeeper.kill()
    time.sleep(1)
    house.cluster.zookeeper.start()
    return "ZooKeeper"


def _part_from_zookeeper(seconds: float) -> Act:
    def act(house: House, dice: random.Random) -> str:
        broker = dice.choice(house.brokers)
        broker.zookeeper_relay.cut() if dice.random() < 0.5 else broker.zookeeper_relay.hold()
        time.sleep(seconds)
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


_SESSION = "its session"
FAULTS = [
    Fault("nothing, to compare with", _nothing),
    Fault("kill -9 of a broker, which is away for 5 s", _restart_broker(HurtBroker.kill, AWAY_S)),
    Fault("kill -9 of a broker, started again at once", _restart_broker(HurtBroker.kill)),
    Fault(f"a broker stands still (SIGSTOP) for 1 s, less than {_SESSION}", _stop_broker(1)),
    Fault(f"a broker stands still for 6 s, more than {_SESSION}", _stop_broker(6)),
    Fault("kill -9 of a bookie, which is away for 5 s", _kill_bookie),
    Fault("a bookie stands still for 5 s", _stop_bookie),
    Fault("kill -9 of all bookies at once", _kill_bookies),
    Fault("kill -9 of a broker and of a bookie at once", _kill_both),
    Fault("ZooKeeper stands still for 1 s", _stop_zookeeper(1)),
    Fault("ZooKeeper stands still for 6 s, more than sessions last", _stop_zookeeper(6)),
    Fault("kill -9 of ZooKeeper, started again after 1 s", _kill_zookeeper),
    Fault("a broker and ZooKeeper are parted for 1 s", _part_from_zookeeper(1)),
    Fault(f"a broker and ZooKeeper are parted for 6 s, more than {_SESSION}", _part_from_zookeeper(6)),
    Fault("all connections to a broker are broken, three times", _break_connections),
    Fault("no byte to or from a broker for 3 s, then its connections are broken", _hold_clients),
    Fault("a bundle is unloaded", _unload, planned=True),
    Fault("a bundle is moved to another broker", _move, planned=True),
    Fault("a bundle is split", _split, planned=True),
    Fault("a broker ends in order and is started again", _restart_broker(HurtBroker.end), planned=True),
    Fault("a rolling restart", _roll, planned=True),
]
