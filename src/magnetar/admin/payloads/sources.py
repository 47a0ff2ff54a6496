"""The schemas that apply to a topic: of its broker's schema registry, and those that Pulsar producers set."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, cast

from magnetar.admin.errors import AdminError, Invalid
from magnetar.admin.explain import Explained
from magnetar.admin.lines import Seen
from magnetar.admin.payloads.decoding import Decoding, Written
from magnetar.admin.payloads.registry import RemoteRegistry
from magnetar.admin.topic_schema import TopicSchemaVersion
from magnetar.admin.whereabouts import data_directory, leader_of, way_to_ask
from magnetar.node.address_file import ADDRESS_FILE
from magnetar.records.schema_ids import frame_of

if TYPE_CHECKING:
    from magnetar.admin.client import Way

_FRAME = len(frame_of(0))


def registry_of(url: str | None, bootstrap: str) -> RemoteRegistry | None:
    """Return the registry at a URL, or the one that the broker serves if that runs on this machine."""
    if url:
        return RemoteRegistry(url)
    try:
        word = json.loads((data_directory(None, bootstrap) / ADDRESS_FILE).read_text())
        return RemoteRegistry(str(word["schema-registry"][0]))
    except (AdminError, OSError, ValueError, LookupError, TypeError):
        return None


def needed_registry(url: str | None, bootstrap: str) -> RemoteRegistry:
    """Return the same; raise `Invalid` if there is none."""
    found = registry_of(url, bootstrap)
    if found is None:
        raise Invalid(
            "which schema registry?", "Name it with --schema-registry URL, or MAGNETAR_SCHEMA_REGISTRY."
        )
    return found


def decoding_of(topic: str, registry_url: str | None, bootstrap: str) -> Decoding:
    """Return what decodes a topic's records by all schemas that apply to it."""
    registry = registry_of(registry_url, bootstrap)
    try:
        way = way_to_ask(None, None, bootstrap)
        schemas = cast("tuple[TopicSchemaVersion, ...]", way.ask("schemas", topic=topic))
    except AdminError:  # a broker of another kind, or one that tells this client nothing
        return Decoding(registry)
    return Decoding(registry, schemas, _Written(bootstrap))


class _Written:
    """Asks how records were written: once for each entry, whose records were written alike."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._ways: dict[int, Way] = {}
        self._last: dict[int, tuple[range, Written]] = {}

    def __call__(self, record: Seen) -> Written:
        known, written = self._last.get(record.partition, (range(0), Written()))
        if record.offset in known:
            return written
        if record.partition not in self._ways:
            owner = leader_of(record.topic, record.partition)
            self._ways[record.partition] = way_to_ask(None, None, self._bootstrap, owner)
        way = self._ways[record.partition]
        try:
            found = cast(
                Explained,
                way.ask("explain", topic=record.topic, partition=record.partition, offset=record.offset),
            )
        except AdminError:
            return Written()
        if found.message is None or found.record is None:
            return Written()
        kept = found.record
        written = Written(
            found.message.schema_version,
            key_framed=record.key is not None and len(record.key) == kept.key.size + _FRAME,
            value_framed=record.value is not None and len(record.value) == kept.value.size + _FRAME,
        )
        if record.value is not None:  # of a null there is nothing to be seen
            base = found.offset - found.batch_index
            last = base if found.batch is None else found.batch.last_offset
            self._last[record.partition] = range(base, last + 1), written
        return written
