"""A real broker inside a test: started in tens of milliseconds, on a directory of its own, gone afterwards.

    from magnetar.testing import Broker

    with Broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

- `Broker`: for tests without an event loop; it runs in a thread. `AsyncBroker`: for tests that have one.
- `Record`: what `Broker.records` returns and `Broker.produce` takes.
- `pytest_magnetar`, a package of its own: fixtures that pytest finds by itself.

The broker is the one that `magnetar standalone` runs, with defaults for tests: groups do not wait for more members,
nothing is flushed to the disk, ports are free ones. Page: ``docs/testing.md``.

May import: everything below the command line.
"""

from __future__ import annotations

from magnetar.testing.broker import AsyncBroker, Broker
from magnetar.testing.records import Record

__all__ = ["AsyncBroker", "Broker", "Record"]
