"""What can be asked of the registry: Confluent's REST API, one function each, and the table of them all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

from magnetar import __version__
from magnetar.schema_registry.errors import RegistryError, no_schema
from magnetar.schema_registry.levels import Level, Mode
from magnetar.schema_registry.registry import Overtaken, ParsedSchema, refuse
from magnetar.schema_registry.request import RegistryRequest, RequiredGrant
from magnetar.schema_registry.schema import KINDS, Schema, Version

Endpoint = Callable[[RegistryRequest], Awaitable[Any]]


class Text(NamedTuple):
    """An answer that is the schema itself."""

    text: str


class RegistryRoute(NamedTuple):
    """One line of the table."""

    method: str
    path: str
    endpoint: Endpoint
    needs: RequiredGrant


# -- schemas ----------------------------------------------------------------------------------------------------


async def schema_by_id(ask: RegistryRequest) -> dict[str, Any]:
    """Return a schema by its id."""
    schema = _visible(ask)
    answer = await _body(ask, schema)
    if ask.flag("fetchMaxId"):
        answer["maxId"] = ask.registry.kept.state.last_id
    return answer


async def text_by_id(ask: RegistryRequest) -> Text:
    """Return a schema's text by its id."""
    return Text((await _body(ask, _visible(ask)))["schema"])


async def subjects_by_id(ask: RegistryRequest) -> list[str]:
    """Return the subjects that have a schema."""
    _visible(ask)
    return list(dict.fromkeys(name for name, _ in _users(ask)))


async def versions_by_id(ask: RegistryRequest) -> list[dict[str, Any]]:
    """Return the subjects and versions that have a schema."""
    _visible(ask)
    return [{"subject": name, "version": number} for name, number in _users(ask)]


async def types(ask: RegistryRequest) -> list[str]:
    """Return the kinds of schemas there are."""
    return list(KINDS)


async def schemas(ask: RegistryRequest) -> list[dict[str, Any]]:
    """Return all versions of all subjects, or the latest of each."""
    prefix, deleted = ask.query.get("subjectPrefix", ""), ask.flag("deleted")
    found = []
    for name in ask.registry.subjects(deleted=deleted):
        if name.startswith(prefix) and ask.allows(name, RequiredGrant.read):
            versions = ask.registry.versions(name, deleted=deleted)
            for each in versions[-1:] if ask.flag("latestOnly") else versions:
                found.append(await _described(ask, name, each))
    return _page(ask, found)


# -- subjects ---------------------------------------------------------------------------------------------------


async def subjects(ask: RegistryRequest) -> list[str]:
    """Return all subjects."""
    prefix = ask.query.get("subjectPrefix", "")
    prefix = prefix.removeprefix(":*:").removeprefix(":.:")
    only = ask.flag("deletedOnly")
    found = ask.registry.subjects(deleted=ask.flag("deleted") or only)
    live = set(ask.registry.subjects()) if only else set()
    return _page(
        ask,
        [
            name
            for name in found
            if name.startswith(prefix) and name not in live and ask.allows(name, RequiredGrant.read)
        ],
    )


async def versions(ask: RegistryRequest) -> list[int]:
    """Return the numbers of a subject's versions."""
    only = ask.flag("deletedOnly")
    found = ask.registry.versions(ask.subject, deleted=ask.flag("deleted") or only)
    return _page(ask, [each.version for each in found if each.deleted or not only])


async def version(ask: RegistryRequest) -> dict[str, Any]:
    """Return one version of a subject."""
    return await _described(ask, ask.subject, _version(ask))


async def text_of_version(ask: RegistryRequest) -> Text:
    """Return the text of one version of a subject."""
    return Text((await _body(ask, ask.registry.schema(_version(ask).schema_id)))["schema"])


async def referenced_by(ask: RegistryRequest) -> list[int]:
    """Return the ids of the schemas that refer to a version."""
    found = _version(ask)
    return ask.registry.referenced_by(ask.subject, found.version)


async def register(ask: RegistryRequest) -> dict[str, Any]:
    """Register a schema under a subject, unless it is there already; give its id."""
    sent = ask.schema()
    as_id, as_version = ask.given_number("id"), ask.given_number("version")
    async with ask.locked():
        schema_id: int | None = None
        while schema_id is None:
            new = await _understood(ask, sent)
            known = ask.registry.kept.ids.get(new.schema)
            before = ask.registry.kept.subjects.get(ask.subject)
            if as_id < 0 and not (before and any(each.schema_id == known for each in before.live)):
                refuse(ask.subject, await _clashes(ask, new))
            with suppress(Overtaken):  # by the broker itself, or by another one
                schema_id = await ask.registry.register(
                    ask.subject, new, as_id=as_id, as_version=as_version, checked=before
                )
    found = next(each for each in ask.registry.versions(ask.subject) if each.schema_id == schema_id)
    return {"id": schema_id, "version": found.version} | _told(new.schema)


async def look_up(ask: RegistryRequest) -> dict[str, Any]:
    """Tell which version of a subject a schema is."""
    ask.registry.versions(ask.subject, deleted=ask.flag("deleted"))
    new = await _understood(ask, ask.schema())
    return await _described(
        ask, ask.subject, ask.registry.find(ask.subject, new.schema, deleted=ask.flag("deleted"))
    )


async def delete_subject(ask: RegistryRequest) -> list[int]:
    """Delete a subject: first so that it can still be found, then for good."""
    async with ask.locked():
        return await ask.registry.delete_subject(ask.subject, permanent=ask.flag("permanent"))


async def delete_version(ask: RegistryRequest) -> int:
    """Delete one version: first so that it can still be found, then for good."""
    async with ask.locked():
        return await ask.registry.delete_version(ask.subject, ask.version, permanent=ask.flag("permanent"))


# -- compatibility ----------------------------------------------------------------------------------------------


async def compatible(ask: RegistryRequest) -> dict[str, Any]:
    """Tell whether a schema may follow one version, or what the subject's level asks for."""
    number = ask.registry.version(ask.subject, ask.version).version if "version" in ask.path else None
    new = await _understood(ask, ask.schema())
    reasons = await _clashes(ask, new, number)
    answer: dict[str, Any] = {"is_compatible": not reasons}
    return answer | {"messages": reasons} if ask.flag("verbose") else answer


async def level(ask: RegistryRequest) -> dict[str, str]:
    """Return the compatibility level of all subjects."""
    return {"compatibilityLevel": ask.registry.kept.state.compatibility.name}


async def level_of(ask: RegistryRequest) -> dict[str, str]:
    """Return the compatibility level of a subject."""
    kept = ask.registry.kept
    own = kept.subjects[ask.subject].compatibility if ask.subject in kept.subjects else None
    if own is None and not ask.flag("defaultToGlobal"):
        raise RegistryError(
            40408, f"Subject '{ask.subject}' does not have subject-level compatibility configured"
        )
    return {"compatibilityLevel": (own or kept.state.compatibility).name}


async def set_level(ask: RegistryRequest) -> dict[str, str]:
    """Set the compatibility level of all subjects, or of one."""
    text = str(ask.object().get("compatibility")).upper()
    if text not in Level.__members__:
        raise RegistryError(
            42203,
            "Invalid compatibility level. Valid values are none, backward, forward, full, backward_transitive, "
            "forward_transitive, and full_transitive",
        )
    async with ask.locked():
        await ask.registry.set_level(ask.subject if "subject" in ask.path else None, Level[text])
    return {"compatibility": text}


async def reset_level(ask: RegistryRequest) -> dict[str, str]:
    """Take the compatibility level back."""
    before = await (level_of if "subject" in ask.path else level)(ask)
    async with ask.locked():
        await ask.registry.set_level(ask.subject if "subject" in ask.path else None, None)
    return before


async def mode(ask: RegistryRequest) -> dict[str, str]:
    """Return the mode of the registry."""
    return {"mode": ask.registry.kept.state.mode.name}


async def mode_of(ask: RegistryRequest) -> dict[str, str]:
    """Return the mode of a subject."""
    kept = ask.registry.kept
    own = kept.subjects[ask.subject].mode if ask.subject in kept.subjects else None
    if own is None and not ask.flag("defaultToGlobal"):
        raise RegistryError(40409, f"Subject '{ask.subject}' does not have subject-level mode configured")
    return {"mode": (own or kept.state.mode).name}


async def set_mode(ask: RegistryRequest) -> dict[str, str]:
    """Set the mode of the registry, or of a subject."""
    text = str(ask.object().get("mode")).upper()
    if text not in Mode.__members__:
        raise RegistryError(42204, f"Invalid mode. Valid values are {', '.join(each.name for each in Mode)}")
    async with ask.locked():
        await ask.registry.set_mode(
            ask.subject if "subject" in ask.path else None, Mode[text], force=ask.flag("force")
        )
    return {"mode": text}


async def reset_mode(ask: RegistryRequest) -> dict[str, str]:
    """Take the mode back."""
    before = await (mode_of if "subject" in ask.path else mode)(ask)
    async with ask.locked():
        await ask.registry.set_mode(ask.subject if "subject" in ask.path else None, None)
    return before


# -- the registry itself ----------------------------------------------------------------------------------------


async def root(ask: RegistryRequest) -> dict[str, Any]:
    """Answer, so that it is known to live."""
    return {}


async def contexts(ask: RegistryRequest) -> list[str]:
    """Return the contexts: there is one."""
    return ["."]


async def cluster_id(ask: RegistryRequest) -> dict[str, Any]:
    """Tell which Kafka cluster it is of."""
    clusters = {"kafka-cluster": ask.broker.identity.cluster_id, "schema-registry-cluster": "schema-registry"}
    return {"scope": {"path": [], "clusters": clusters}, "id": ""}


async def server_version(ask: RegistryRequest) -> dict[str, str]:
    """Tell which version of Magnetar this is."""
    return {"version": __version__, "commitId": ""}


# -- what they share --------------------------------------------------------------------------------------------


async def _understood(ask: RegistryRequest, schema: Schema) -> ParsedSchema:
    ask.check_references(schema)
    return await ask.workshop.do(lambda work: ask.registry.understand(schema, work))


async def _clashes(ask: RegistryRequest, new: ParsedSchema, number: int | None = None) -> list[str]:
    registry = ask.registry
    level, older = registry.level(ask.subject), registry.older(ask.subject, number)
    unseen = {schema for _, schema in older if not ask.sees_behind(schema)}
    return await ask.workshop.do(lambda work: registry.clashes(level, new, older, work, unseen))


def _version(ask: RegistryRequest) -> Version:
    return ask.registry.version(ask.subject, ask.version, deleted=ask.flag("deleted"))


def _users(ask: RegistryRequest) -> list[tuple[str, int]]:
    found = ask.registry.users(ask.schema_id, deleted=ask.flag("deleted"))
    wanted = ask.query.get("subject")
    return [each for each in found if wanted in (None, each[0]) and ask.allows(each[0], RequiredGrant.read)]


def _visible(ask: RegistryRequest) -> Schema:
    """Return the schema of the path, if one of its subjects is open to whoever asks."""
    schema = ask.registry.schema(ask.schema_id)
    users = ask.registry.users(ask.schema_id, deleted=True)
    if not ask.governs() and not any(ask.allows(name, RequiredGrant.read) for name, _ in users):
        raise no_schema(ask.schema_id)
    return schema


async def _body(ask: RegistryRequest, schema: Schema) -> dict[str, Any]:
    text = schema.text
    if schema.kind == "PROTOBUF" and ask.query.get("format") == "serialized":
        from magnetar.schema_registry.kinds.protobuf_kind import serialized

        texts = ask.registry.texts(schema)
        text = await ask.workshop.do(lambda work: serialized(schema.text, texts, work))
    return {"schema": text} | _told(schema)


def _told(schema: Schema) -> dict[str, Any]:
    """Return what is said only where it is not the usual."""
    told: dict[str, Any] = {} if schema.kind == "AVRO" else {"schemaType": schema.kind}
    if schema.references:
        told["references"] = [each.to_json() for each in schema.references]
    return told


async def _described(ask: RegistryRequest, name: str, found: Version) -> dict[str, Any]:
    body = await _body(ask, ask.registry.schema(found.schema_id))
    return {"subject": name, "version": found.version, "id": found.schema_id} | body


def _page(ask: RegistryRequest, rows: list[Any]) -> list[Any]:
    offset, limit = max(ask.number("offset", 0), 0), ask.number("limit", -1)
    return rows[offset:] if limit < 0 else rows[offset : offset + limit]


_VERSION = "/subjects/{subject:path}/versions/{version}"
ROUTES = (
    RegistryRoute("GET", "/", root, RequiredGrant.nothing),
    RegistryRoute("GET", "/schemas", schemas, RequiredGrant.read),
    RegistryRoute("GET", "/schemas/types", types, RequiredGrant.nothing),
    RegistryRoute("GET", "/schemas/ids/{id}", schema_by_id, RequiredGrant.read),
    RegistryRoute("GET", "/schemas/ids/{id}/schema", text_by_id, RequiredGrant.read),
    RegistryRoute("GET", "/schemas/ids/{id}/subjects", subjects_by_id, RequiredGrant.read),
    RegistryRoute("GET", "/schemas/ids/{id}/versions", versions_by_id, RequiredGrant.read),
    RegistryRoute("GET", "/subjects", subjects, RequiredGrant.read),
    RegistryRoute("GET", "/subjects/{subject:path}/versions", versions, RequiredGrant.read),
    RegistryRoute("POST", "/subjects/{subject:path}/versions", register, RequiredGrant.write),
    RegistryRoute("GET", _VERSION, version, RequiredGrant.read),
    RegistryRoute("DELETE", _VERSION, delete_version, RequiredGrant.admin),
    RegistryRoute("GET", f"{_VERSION}/schema", text_of_version, RequiredGrant.read),
    RegistryRoute("GET", f"{_VERSION}/referencedby", referenced_by, RequiredGrant.read),
    RegistryRoute("POST", "/subjects/{subject:path}", look_up, RequiredGrant.read),
    RegistryRoute("DELETE", "/subjects/{subject:path}", delete_subject, RequiredGrant.admin),
    RegistryRoute("POST", f"/compatibility{_VERSION}", compatible, RequiredGrant.read),
    RegistryRoute("POST", "/compatibility/subjects/{subject:path}/versions", compatible, RequiredGrant.read),
    RegistryRoute("GET", "/config", level, RequiredGrant.nothing),
    RegistryRoute("PUT", "/config", set_level, RequiredGrant.admin),
    RegistryRoute("DELETE", "/config", reset_level, RequiredGrant.admin),
    RegistryRoute("GET", "/config/{subject:path}", level_of, RequiredGrant.read),
    RegistryRoute("PUT", "/config/{subject:path}", set_level, RequiredGrant.admin),
    RegistryRoute("DELETE", "/config/{subject:path}", reset_level, RequiredGrant.admin),
    RegistryRoute("GET", "/mode", mode, RequiredGrant.nothing),
    RegistryRoute("PUT", "/mode", set_mode, RequiredGrant.admin),
    RegistryRoute("DELETE", "/mode", reset_mode, RequiredGrant.admin),
    RegistryRoute("GET", "/mode/{subject:path}", mode_of, RequiredGrant.read),
    RegistryRoute("PUT", "/mode/{subject:path}", set_mode, RequiredGrant.admin),
    RegistryRoute("DELETE", "/mode/{subject:path}", reset_mode, RequiredGrant.admin),
    RegistryRoute("GET", "/contexts", contexts, RequiredGrant.nothing),
    RegistryRoute("GET", "/v1/metadata/id", cluster_id, RequiredGrant.nothing),
    RegistryRoute("GET", "/v1/metadata/version", server_version, RequiredGrant.nothing),
)
"""The only list of what is served."""
