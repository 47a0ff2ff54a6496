"""Ask the handlers as a client would: through the bytes of one version, both ways."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from magnetar.kafka.group_configs import GroupConfigStore
from magnetar.kafka.listeners import parse_listeners
from magnetar.metadata import MemoryStore, MetadataStore
from magnetar.node.broker import Broker
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.message import Message
from tests.broker.engine import NoLedgers


async def size_of(topic: object, index: int) -> int:
    return 7


@dataclass
class Client:
    broker: Broker
    configs: GroupConfigStore

    async def ask(self, request: Message, version: int | None = None) -> Any:
        version = type(request).MAX_VERSION if version is None else version
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", type(request).__name__.removesuffix("Request")).lower()
        handler = getattr(importlib.import_module(f"magnetar.kafka.handlers.{name}"), name)
        context = SimpleNamespace(
            access=None,
            api_version=version,
            shows=lambda topic: True,
            is_stranger=False,
            software=SimpleNamespace(name=""),
            listener=parse_listeners(self.broker.settings)[0],
            kafka=SimpleNamespace(
                broker=self.broker,
                partitions=SimpleNamespace(size_of=size_of),
                groups=SimpleNamespace(configs=self.configs.room("__consumer_offsets")),
                quotas=SimpleNamespace(enabled=False),
                client_metrics=SimpleNamespace(
                    is_asked_for=True, get=lambda: SimpleNamespace(subscriptions={})
                ),
            ),
        )
        answer = await handler(type(request).decode(request.encode(version), version), context)
        return type(answer).decode(answer.encode(version), version)


async def client(tmp_path: Path, store: MetadataStore | None = None, **settings: str) -> Client:
    texts = {name.replace("_", "."): text for name, text in settings.items()} | {"data.dir": str(tmp_path)}
    broker = Broker(Settings().with_values(texts), store or MemoryStore(), NoLedgers())
    await broker.start()
    configs = GroupConfigStore(broker)
    await broker.metadata.follow(configs)
    return Client(broker, configs)
