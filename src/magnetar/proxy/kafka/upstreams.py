"""One client's connections to brokers: those that it needs, and no one else uses meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from magnetar.client.errors import NoConnection
from magnetar.client.forwarding import ForwardingConnection
from magnetar.proxy.kafka.brokers import Brokers
from magnetar.proxy.kafka.delegated import DelegatedBrokers
from magnetar.proxy.kafka.routes import Address


class Upstreams:
    """``brokers`` is None until it is known who the client is, where it must say so."""

    def __init__(self, brokers: Brokers | None) -> None:
        self._brokers = brokers
        self.on_change: Callable[[], None] = _nothing
        """Called when bytes of one of them came or went, or it broke."""
        self.on_end: Callable[[str], None] = _ended
        """Called when nothing more can be asked in the client's name, with why."""
        self._of_node: dict[int, ForwardingConnection] = {}
        self._any: ForwardingConnection | None = None
        self._addresses: dict[ForwardingConnection, Address] = {}
        """Of all that are in use."""
        self._opening: dict[int | None, asyncio.Future[ForwardingConnection]] = {}
        self._reads = True
        if brokers is not None:
            brokers.clients += 1

    @property
    def brokers(self) -> Brokers:
        """The cluster, as this client sees it."""
        assert self._brokers is not None
        return self._brokers

    @property
    def own(self) -> ForwardingConnection | None:
        """The connection on which the client proved who it is, where others are opened by a token of its."""
        return self._brokers.own if isinstance(self._brokers, DelegatedBrokers) else None

    @property
    def held_bytes(self) -> int:
        """What has come and is not whole, and what brokers do not take."""
        return sum(each.held_bytes for each in self._addresses)

    def belong_to(self, brokers: Brokers, connection: ForwardingConnection, address: Address) -> None:
        """The client has said who it is, on this connection."""
        self.close()
        brokers.clients += 1
        self._brokers, self._any = brokers, connection
        if isinstance(brokers, DelegatedBrokers):
            brokers.on_end = lambda why: self.on_end(why)
        self._use(connection, address)

    def read(self, wanted: bool) -> None:
        """Go on or stop reading what brokers send."""
        if wanted is not self._reads:
            self._reads = wanted
            for each in self._addresses:
                each.read(wanted)

    def ready(self, node: int) -> ForwardingConnection | None:
        """Return the connection to a node if it is there and takes what it is sent."""
        found = self._of_node.get(node)
        return found if found is not None and not found.closed and found.is_writable else None

    async def reach(self, node: int | None) -> ForwardingConnection:
        """Return the connection to a node (None: to any one), which takes what it is sent. Raises `ClientError`."""
        found = self._any if node is None else self._of_node.get(node)
        if found is None or found.closed:
            opening = self._opening.get(node)
            if opening is None:
                opening = self._opening[node] = asyncio.ensure_future(self._open(node))
                opening.add_done_callback(lambda done: self._opened(node, done))
            found = await asyncio.shield(opening)
        await found.until_writable()
        return found

    def _opened(self, node: int | None, done: asyncio.Future[ForwardingConnection]) -> None:
        self._opening.pop(node, None)
        if not done.cancelled():
            done.exception()  # who waited for it may have left

    async def connect(self, node: int | None) -> ForwardingConnection:
        """Return a connection to a node for one purpose alone; to be given back by `let_go`."""
        brokers = self.brokers
        if node is None:
            return self._use(*await brokers.connect_anywhere())
        address = self._address(node)
        return self._use(await brokers.connect(address), address)

    async def _open(self, node: int | None) -> ForwardingConnection:
        if node is None:
            there = next((each for each in self._of_node.values() if not each.closed), None)
            self._any = there or await self.connect(None)
            return self._any
        first = self._any
        if first is not None and not first.closed and self._addresses.get(first) == self._address(node):
            made = self._of_node[node] = first
        else:
            made = self._of_node[node] = await self.connect(node)
        return made

    def _address(self, node: int) -> Address:
        address = self.brokers.routes.nodes.get(node)
        if address is None:
            raise NoConnection(f"broker {node} is not there")
        return address

    def _use(self, connection: ForwardingConnection, address: Address) -> ForwardingConnection:
        for gone in [each for each in self._addresses if each.closed]:
            del self._addresses[gone]
        self._addresses[connection] = address
        connection.on_change = lambda: self.on_change()
        connection.read(self._reads)
        return connection

    def let_go(self, connection: ForwardingConnection) -> None:
        """Give back a connection that is needed no more."""
        address = self._addresses.pop(connection, None)
        if address is not None:
            self.brokers.give_back(connection, address, asyncio.get_running_loop().time())

    def look(self, now: float) -> None:
        """Give up on brokers that do not answer in time."""
        for each in list(self._addresses):
            each.look(now)

    def close(self) -> None:
        """Give all of them back."""
        for each in list(self._addresses):
            self.let_go(each)
        self._of_node.clear()
        self._any = None
        for opening in self._opening.values():
            opening.cancel()
        if self._brokers is not None:
            self._brokers.clients -= 1
            self._brokers = None


def _nothing() -> None:
    """Nobody wants to know."""


def _ended(why: str) -> None:
    """Nobody wants to know."""
