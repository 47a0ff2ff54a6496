"""The schemas that records of a topic may have been written with, to read their values in a thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from magnetar.console.decoding import RegistrySchema, value_of
from magnetar.pulsar.rest.request import AdminRequest
from magnetar.schema_registry.errors import RegistryError
from magnetar.schema_registry.registries import Registries
from magnetar.schema_registry.registry import Registry
from magnetar.schema_registry.topic_schemas import TopicSchema, read_schemas
from magnetar.topics.topic import Topic


class RegistrySchemas(Mapping[int, RegistrySchema]):
    """Those of a registry by their ids, each looked up when a record names it."""

    def __init__(self, registry: Registry | None) -> None:
        self._registry = registry
        self._known: dict[int, RegistrySchema | None] = {}

    def __getitem__(self, number: int) -> RegistrySchema:
        if number not in self._known:
            self._known[number] = self._found(number)
        found = self._known[number]
        if found is None:
            raise KeyError(number)
        return found

    def __iter__(self) -> Iterator[int]:
        return iter([number for number, found in self._known.items() if found is not None])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _found(self, number: int) -> RegistrySchema | None:
        if self._registry is None:
            return None
        try:
            schema = self._registry.schema(number)
            references = tuple(self._registry.texts(schema).items())
        except (RegistryError, ValueError):
            return None
        return RegistrySchema(f"id {number}", schema.kind, schema.text, references)


class WrittenSchemas:
    """The registry's and the topic's own. Gathered by the loop; used in a thread."""

    def __init__(self, registered: RegistrySchemas, of_topic: Mapping[int, TopicSchema]) -> None:
        self.registered = registered
        self._of_topic = of_topic

    @property
    def only_json(self) -> bool:
        """True if the topic's own schemas leave JSON as it is."""
        return all(each.kind == "Json" for each in self._of_topic.values())

    def of_version(self, version: bytes) -> TopicSchema | None:
        """Return the schema that a Pulsar producer named."""
        return self._of_topic.get(int.from_bytes(version, "big", signed=True)) if version else None

    def decode(self, data: bytes | None, version: bytes) -> Any:
        """Return a value as JSON has it; None for what none of the schemas fits, and is no JSON."""
        return value_of(data, self.registered, self.of_version(version))


async def schemas_of(ask: AdminRequest, topic: Topic) -> WrittenSchemas:
    """Return the schemas for a topic's records."""
    registries = ask.services.broker.offers.find(Registries)
    registry = None if registries is None else await registries.of(topic.name.tenant)
    return WrittenSchemas(RegistrySchemas(registry), await read_schemas(ask.services.broker.store, topic))
