"""The schemas of topics, as Pulsar's admin reads and writes them."""

from __future__ import annotations

import json
from typing import Any

from magnetar.pulsar.rest.request import AdminRequest, RequiredLevel, RestError, RestRoute
from magnetar.pulsar.schema_rules import Definition, joined, key_and_value, type_name
from magnetar.pulsar.schemas import SchemaVersion
from magnetar.schema_registry.work import Work, read_json
from magnetar.wire.pulsar import pulsar_pb2 as wire

_TYPES = {name.upper(): name for name in wire.Schema.Type.DESCRIPTOR.values_by_name}


async def latest(ask: AdminRequest) -> dict[str, Any]:
    """Return the schema in force, or with a version that one."""
    version = ask.number("version", -1)
    found = await ask.services.schemas.get(ask.topic.topic, None if version < 0 else version)
    if found is None:
        raise RestError(404, "Schema not found")
    return _as_json(found)


async def versions(ask: AdminRequest) -> dict[str, Any]:
    """Return all versions of a topic's schema since it was last deleted."""
    schemas, topic = ask.services.schemas, ask.topic.topic
    if not await schemas.versions(topic):
        raise RestError(404, "Schema not found")
    return {"getSchemaResponses": [_as_json(each) for each in await schemas.live(topic)]}


async def add(ask: AdminRequest) -> dict[str, Any]:
    """Add a version, unless it is there already or incompatible."""
    made = await ask.services.schemas.add(ask.topic.topic, _schema(ask), ask.principal.role)
    return {"version": {"version": made.version}}


async def delete(ask: AdminRequest) -> dict[str, Any]:
    """End the schema in force; the version is a plain number here, and pulsar-admin waits for ever for another one.

    Where there is none, as of a topic that is deleted, that is so already: the last version is told, -1 for none.
    """
    schemas, topic = ask.services.schemas, ask.topic.topic
    if await schemas.latest(topic) is None:
        return {"version": len(await schemas.versions(topic)) - 1}
    return {"version": await schemas.delete(topic)}


async def compatibility(ask: AdminRequest) -> dict[str, Any]:
    """Tell whether a schema may become the next version."""
    from magnetar.pulsar.errors import IncompatibleSchema

    strategy = ask.services.schemas.strategy(ask.topic.topic).value
    try:
        await ask.services.schemas.check(ask.topic.topic, _schema(ask))
    except IncompatibleSchema as error:
        return {"compatibility": False, "schemaCompatibilityStrategy": strategy, "reason": str(error)}
    return {"compatibility": True, "schemaCompatibilityStrategy": strategy}


async def version_of(ask: AdminRequest) -> dict[str, Any]:
    """Tell which version a schema has."""
    found = await ask.services.schemas.find(ask.topic.topic, _schema(ask))
    if found is None:
        raise RestError(404, "Schema not found")
    return {"version": found.version}


def _schema(ask: AdminRequest) -> wire.Schema:
    content = ask.object()
    name = _TYPES.get(str(content.get("type", "")).upper().replace("_", ""))
    if name is None:
        raise RestError(422, f"type must be one of {', '.join(sorted(_TYPES))}, not {content.get('type')!r}")
    text = content.get("schema", content.get("data", ""))
    if not isinstance(text, str):
        raise RestError(422, "schema must be a string")
    made = wire.Schema(
        name=ask.path["topic"], schema_data=_data(name, text), type=wire.Schema.Type.Value(name)
    )
    given = content.get("properties") or {}
    if not isinstance(given, dict):
        raise RestError(422, "properties must be an object")
    for key, value in given.items():
        made.properties.add(key=str(key), value=value if isinstance(value, str) else json.dumps(value))
    return made


def _text(version: SchemaVersion) -> str:
    """Return a schema as text; of KEY_VALUE an object of both, where a kind that has no schema is an empty text."""
    if version.type == wire.Schema.KeyValue:
        try:
            parts = key_and_value(Definition(version.type, version.data, dict(version.properties)))
            work = Work()
            texts = [read_json(part.data, work) if part.data.strip() else "" for part in parts]
            return json.dumps(dict(zip(("key", "value"), texts, strict=True)), separators=(",", ":"))
        except ValueError:
            pass  # it was kept before anybody looked at it
    return version.data.decode("utf-8", "replace")


def _data(name: str, text: str) -> bytes:
    """Return what is kept of a schema's text: `_text` the other way round."""
    if name != "KeyValue":
        return text.encode()
    try:
        content = read_json(text, Work())
        parts = [content[part] for part in ("key", "value")]
    except (ValueError, KeyError, TypeError):
        if text.startswith("\0"):  # both behind their sizes
            return text.encode()
        raise RestError(422, "the schema of KEY_VALUE must be an object of key and value") from None
    return joined(
        *(b"" if part == "" else json.dumps(part, separators=(",", ":")).encode() for part in parts)
    )


def _as_json(version: SchemaVersion) -> dict[str, Any]:
    return {
        "version": version.version,
        "type": type_name(version.type),
        "timestamp": version.timestamp_ms,
        "data": _text(version),
        "properties": dict(version.properties),
    }


_ROOT = "/schemas/{tenant}/{namespace}/{topic}"
ROUTES = (
    RestRoute("GET", f"{_ROOT}/schema", latest, RequiredLevel.look_up),
    RestRoute("POST", f"{_ROOT}/schema", add, RequiredLevel.produce),
    RestRoute("DELETE", f"{_ROOT}/schema", delete, RequiredLevel.tenant),
    RestRoute("GET", f"{_ROOT}/schema/{{version}}", latest, RequiredLevel.look_up),
    RestRoute("GET", f"{_ROOT}/schemas", versions, RequiredLevel.look_up),
    RestRoute("POST", f"{_ROOT}/compatibility", compatibility, RequiredLevel.look_up),
    RestRoute("POST", f"{_ROOT}/version", version_of, RequiredLevel.look_up),
)
