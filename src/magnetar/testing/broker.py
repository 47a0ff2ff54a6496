"""A broker in the test's own process: `AsyncBroker` on the running event loop, `Broker` in a thread of its own."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import uvloop

from magnetar.admin import groups, topics
from magnetar.admin.cluster import ClusterAdmin
from magnetar.node.service import BrokerService
from magnetar.node.setting_sources import load
from magnetar.settings.settings import Settings
from magnetar.testing.records import Record, Text, produce, read
from magnetar.testing.wire import Wire

Result = TypeVar("Result")
TIMEOUT_S = 30.0
"""So long, in seconds, helpers wait before they raise ``TimeoutError``."""
HOST = "127.0.0.1"
DEFAULTS = {
    # A group is ready at once; by default it waits 3 s for more members.
    "group.initial.rebalance.delay.ms": "0",
    # A test's records need not survive the machine.
    "flush": "os",
    "listeners": f"PLAINTEXT://{HOST}:0",
    "pulsar.listeners": f"pulsar://{HOST}:0",
    "http.listeners": f"http://{HOST}:0",
    "schema.registry.listeners": f"http://{HOST}:0",
}
_LISTENERS = {
    "kafka": ("listeners", "PLAINTEXT://"),
    "pulsar": ("pulsar.listeners", ""),
    "http": ("http.listeners", ""),
    "schema-registry": ("schema.registry.listeners", ""),
}
"""By protocol: the setting of its listeners, and what stands before the address there."""
_ADVERTISED = {
    "kafka": ("advertised.listeners", "PLAINTEXT://"),
    "pulsar": ("pulsar.advertised.listeners", "pulsar://"),
}
_IDLE = ("empty", "dead")
"""States of groups that may be deleted."""


class AsyncBroker:
    """One broker on the running event loop. Use it with ``async with``; its properties hold while it runs."""

    def __init__(
        self, settings: Mapping[str, object] | None = None, *, data: Path | None = None, faults: bool = False
    ) -> None:
        """Choose settings by the names of ``docs/configuration.md``; raise ``InvalidConfig`` for wrong ones.

        ``data`` is a directory that is kept; by default one is made and removed. With ``faults`` clients of both
        protocols reach the broker by `wire`, which can be paused and cut.
        """
        self._given = {**DEFAULTS, **{name: str(value) for name, value in (settings or {}).items()}}
        self._is_ours = data is None
        self._has_faults = faults
        self._service: BrokerService | None = None
        self._wire: Wire | None = None
        self._wire_ports: dict[str, int] = {}
        self._settings(Path("unused"))
        self.data = Path(tempfile.mkdtemp(prefix="magnetar-")) if data is None else data
        """The data directory."""

    def _settings(self, data: Path, **more: str) -> Settings:
        given = {**self._given, **more, "data.dir": str(data)}
        return load(None, [f"{name}={value}" for name, value in given.items()], environment={}).settings

    async def start(self) -> None:
        """Serve; return once clients may connect. Raises what stands against it, with nothing left running."""
        if self._service is not None:
            raise RuntimeError("the broker runs already")
        service = BrokerService(self._settings(self.data, **await self._advertised()))
        await service.start()
        self._service = service
        if self._wire is not None:
            for protocol in _ADVERTISED:
                bind = service.listeners[protocol][0].bind
                self._wire.leads_to[protocol] = (HOST, bind.port)

    async def _advertised(self) -> dict[str, str]:
        """Return settings by which clients connect to the wire; none without faults."""
        if not self._has_faults:
            return {}
        if self._wire is None:
            self._wire = Wire()
            for protocol in _ADVERTISED:
                self._wire_ports[protocol] = await self._wire.open(protocol, HOST)
        return {
            setting: f"{scheme}{HOST}:{self._wire_ports[protocol]}"
            for protocol, (setting, scheme) in _ADVERTISED.items()
        }

    async def stop(self) -> None:
        """End in order: what was acknowledged is there when it starts again, at the same addresses."""
        service, self._service = self._running, None
        for protocol, listeners in service.served.items():
            if protocol in _LISTENERS and protocol not in (self._wire.leads_to if self._wire else ()):
                setting, scheme = _LISTENERS[protocol]
                self._given[setting] = ",".join(f"{scheme}{each.address}" for each in listeners)
        if self._wire is not None:
            self._wire.leads_to.clear()
        await service.close()

    async def restart(self) -> None:
        """End and start again on the same directory and addresses; clients have to connect anew."""
        await self.stop()
        await self.start()

    async def close(self) -> None:
        """End, and remove the directory if it was made here."""
        if self._service is not None:
            await self.stop()
        if self._wire is not None:
            wire, self._wire = self._wire, None
            await wire.close()
        if self._is_ours:
            await asyncio.to_thread(shutil.rmtree, self.data, ignore_errors=True)

    async def __aenter__(self) -> AsyncBroker:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def _running(self) -> BrokerService:
        if self._service is None:
            raise RuntimeError("the broker does not run: use it in a `with` block, or call start()")
        return self._service

    def _address(self, protocol: str) -> str:
        listeners = self._running.served.get(protocol)
        if not listeners:
            raise RuntimeError(f"the broker serves no {protocol}: a setting has taken its listeners away")
        return listeners[0].address

    @property
    def bootstrap_servers(self) -> str:
        """``HOST:PORT`` for Kafka clients."""
        return self._address("kafka")

    @property
    def pulsar_url(self) -> str:
        """``pulsar://HOST:PORT`` for Pulsar clients."""
        return self._address("pulsar")

    @property
    def http_url(self) -> str:
        """``http://HOST:PORT`` of Pulsar's admin REST and of metrics."""
        return self._address("http")

    @property
    def schema_registry_url(self) -> str:
        """``http://HOST:PORT`` of the schema registry."""
        return self._address("schema-registry")

    @property
    def wire(self) -> Wire:
        """The way between clients and the broker; call its methods on the broker's event loop."""
        if self._wire is None:
            raise RuntimeError("there is no wire to break: make the broker with faults=True, and start it")
        return self._wire

    async def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        """Make a topic; configurations in Kafka's names with ``_`` for dots; raise ``Declined`` with the reason."""
        await asyncio.to_thread(create_topic, self.bootstrap_servers, name, partitions, configs)

    async def produce(self, topic: str, *records: Record | Text) -> None:
        """Write values or `Record`s, and return once all are acknowledged."""
        await asyncio.to_thread(produce, self.bootstrap_servers, topic, records, TIMEOUT_S)

    async def records(self, topic: str, *, isolation: str = "read_committed") -> list[Record]:
        """Return all records of a topic, by partition and offset."""
        return await asyncio.to_thread(read, self.bootstrap_servers, topic, TIMEOUT_S, isolation=isolation)

    async def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return a group's committed offsets by topic and partition; none where there is no such group."""
        return await asyncio.to_thread(committed, self.bootstrap_servers, group)

    async def reset(self) -> None:
        """Delete all topics and all groups without members: a clean broker for the next test."""
        await asyncio.to_thread(reset, self.bootstrap_servers)


class Broker:
    """One broker in a thread of its own. Use it with ``with``; its properties hold while it runs."""

    def __init__(
        self, settings: Mapping[str, object] | None = None, *, data: Path | None = None, faults: bool = False
    ) -> None:
        """Choose settings as for `AsyncBroker`."""
        self._broker = AsyncBroker(settings, data=data, faults=faults)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._loop is None:
            work.close()
            raise RuntimeError("the broker does not run: use it in a `with` block, or call start()")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def start(self) -> None:
        """Serve; return once clients may connect."""
        if self._loop is None:
            loop = self._loop = uvloop.new_event_loop()
            self._thread = threading.Thread(target=_run, args=(loop,), name="magnetar-broker", daemon=True)
            self._thread.start()
        try:
            self._do(self._broker.start())
        except BaseException:
            self.close()
            raise

    def stop(self) -> None:
        """End in order; `start` serves the same directory at the same addresses again."""
        self._do(self._broker.stop())

    def restart(self) -> None:
        """End and start again on the same directory and addresses; clients have to connect anew."""
        self._do(self._broker.restart())

    def close(self) -> None:
        """End, and remove the directory if it was made here. Doing it twice is no error."""
        if self._loop is None or self._thread is None:
            return
        try:
            self._do(self._broker.close())
        finally:
            loop, self._loop = self._loop, None
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def data(self) -> Path:
        """The data directory."""
        return self._broker.data

    @property
    def bootstrap_servers(self) -> str:
        """``HOST:PORT`` for Kafka clients."""
        return self._broker.bootstrap_servers

    @property
    def pulsar_url(self) -> str:
        """``pulsar://HOST:PORT`` for Pulsar clients."""
        return self._broker.pulsar_url

    @property
    def http_url(self) -> str:
        """``http://HOST:PORT`` of Pulsar's admin REST and of metrics."""
        return self._broker.http_url

    @property
    def schema_registry_url(self) -> str:
        """``http://HOST:PORT`` of the schema registry."""
        return self._broker.schema_registry_url

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> None:
        """Make a topic; configurations in Kafka's names with ``_`` for dots; raise ``Declined`` with the reason."""
        create_topic(self.bootstrap_servers, name, partitions, configs)

    def produce(self, topic: str, *records: Record | Text) -> None:
        """Write values or `Record`s, and return once all are acknowledged."""
        produce(self.bootstrap_servers, topic, records, TIMEOUT_S)

    def records(self, topic: str, *, isolation: str = "read_committed") -> list[Record]:
        """Return all records of a topic, by partition and offset."""
        return read(self.bootstrap_servers, topic, TIMEOUT_S, isolation=isolation)

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """Return a group's committed offsets by topic and partition; none where there is no such group."""
        return committed(self.bootstrap_servers, group)

    def reset(self) -> None:
        """Delete all topics and all groups without members: a clean broker for the next test."""
        reset(self.bootstrap_servers)

    def pause(self) -> None:
        """Have nothing pass between clients and the broker; connections stay open. Needs ``faults=True``."""
        self._on_loop(self._broker.wire.pause)

    def resume(self) -> None:
        """End `pause`: what waits passes now."""
        self._on_loop(self._broker.wire.resume)

    def cut(self) -> None:
        """Break all clients' connections, with what is on its way. Needs ``faults=True``."""
        self._on_loop(self._broker.wire.cut)

    def delay(self, seconds: float) -> None:
        """Hold back all data by so many seconds, in either direction. Needs ``faults=True``."""
        self._broker.wire.delay_s = seconds

    def _on_loop(self, act: Callable[[], None]) -> None:
        async def work() -> None:
            act()

        self._do(work())


def create_topic(bootstrap: str, name: str, partitions: int, configs: Mapping[str, object]) -> None:
    """Make a topic with configurations like ``cleanup_policy="compact"``; raise ``Declined`` with the reason."""
    named = {key.replace("_", "."): _text(value) for key, value in configs.items()}
    with ClusterAdmin(bootstrap) as cluster:
        topics.create_topic(cluster, name, partitions, named)


def committed(bootstrap: str, group: str) -> dict[tuple[str, int], int]:
    """Return a group's committed offsets by topic and partition."""
    with ClusterAdmin(bootstrap) as cluster:
        return groups.committed_of(cluster, group)


def reset(bootstrap: str) -> None:
    """Delete all topics that are not internal, and all groups without members."""
    with ClusterAdmin(bootstrap) as cluster:
        names = [each.name for each in topics.list_topics(cluster)]
        if names:
            topics.delete_topics(cluster, names)
        idle = [each.group for each in groups.list_groups(cluster) if each.state.lower() in _IDLE]
        if idle:
            groups.delete_groups(cluster, idle)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
