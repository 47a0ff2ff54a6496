"""Schemas: the subjects of the registry with their versions, and those of a Pulsar topic."""

from __future__ import annotations

import difflib
import json

from magnetar.auth import Right, may
from magnetar.base.slices import sliced
from magnetar.console.page import Command, ConsolePage, Facts, access_of, line, pulsar_admin, whole
from magnetar.pulsar.rest.request import AdminRequest, RestError
from magnetar.schema_registry.errors import RegistryError
from magnetar.schema_registry.registries import Registries
from magnetar.schema_registry.registry import Registry
from magnetar.schema_registry.request import topic_of

PER_PAGE = 100
_MOST_LETTERS = 200_000
_MOST_VERSIONS = 200


async def _registry(ask: AdminRequest) -> Registry:
    registries = ask.services.broker.offers.find(Registries)
    if registries is None:
        raise RestError(404, "this broker has no schema registry")
    return await registries.of()


def _may_see(ask: AdminRequest, subject: str) -> bool:
    """Return True if the registry shows a subject: to clients that see its topic, others to super users alone."""
    naming = ask.services.broker.naming
    topic = topic_of(subject, f"{naming.tenant}/{naming.namespace}")
    return may(access_of(ask), Right.operate) if topic is None else may(access_of(ask), Right.see, topic)


async def facts(ask: AdminRequest) -> Facts:
    """Return a page of subjects. Query: ``q`` a part of the name, ``page``."""
    registry, wanted = await _registry(ask), ask.query.get("q", "").lower()
    names = [
        name async for name in sliced(registry.subjects()) if wanted in name.lower() and _may_see(ask, name)
    ]
    pages = max((len(names) + PER_PAGE - 1) // PER_PAGE, 1)
    page = whole(ask, "page", 1, 1, pages)
    rows = []
    for name in names[(page - 1) * PER_PAGE : page * PER_PAGE]:
        versions = registry.versions(name)
        rows.append(
            {
                "subject": name,
                "versions": len(versions),
                "latest": versions[-1].version,
                "id": versions[-1].schema_id,
                "kind": registry.schema(versions[-1].schema_id).kind,
                "compatibility": str(registry.level(name)),
            }
        )
    return {"subjects": rows, "found": len(names), "page": page, "pages": pages}


async def subject_facts(ask: AdminRequest) -> Facts:
    """Return one subject, and what a version changed. Query: ``subject``, ``version``, the latest without."""
    name = ask.query.get("subject", "")
    if not name:
        raise RestError(400, "subject=NAME is missing")
    if not _may_see(ask, name):
        raise RestError(403, f"{ask.principal.role or 'anonymous'} may not see the topic of {name}")
    registry = await _registry(ask)
    try:
        versions = registry.versions(name)
        number = ask.number("version", -1)
        chosen = registry.version(name, number)
    except RegistryError as error:
        raise RestError(404, str(error)) from None
    schema = registry.schema(chosen.schema_id)
    before = [each for each in versions if each.version < chosen.version]
    return {
        "subject": name,
        "version": chosen.version,
        "id": chosen.schema_id,
        "kind": schema.kind,
        "compatibility": str(registry.level(name)),
        "text": schema.text[:_MOST_LETTERS],
        "references": [each.to_json() for each in schema.references],
        "versions": [{"version": each.version, "id": each.schema_id} for each in versions[-_MOST_VERSIONS:]],
        "version_count": len(versions),
        "before": before[-1].version if before else None,
        "changes": _changes(registry.schema(before[-1].schema_id).text, schema.text) if before else [],
        "used_by": [
            {"subject": each, "version": version}
            for each, version in registry.users(chosen.schema_id)
            if each != name and _may_see(ask, each)
        ][:_MOST_VERSIONS],
    }


def _changes(old: str, new: str) -> list[str]:
    """Return what differs, line by line."""
    if len(old) + len(new) > _MOST_LETTERS // 4:
        return ["(too large to be compared)"]
    found = difflib.unified_diff(_lines(old), _lines(new), lineterm="", n=1)
    return [each for number, each in enumerate(found) if number > 1][:1000]


def _lines(text: str) -> list[str]:
    """Return a schema in lines: those of JSON are laid out."""

    try:
        return json.dumps(json.loads(text), indent=1, ensure_ascii=False).split("\n")
    except (ValueError, RecursionError):
        return text.split("\n")


def commands(ask: AdminRequest, told: Facts) -> list[Command]:
    """Return what says the same on a command line."""
    return [
        ("curl", line("curl", "http://SCHEMA-REGISTRY/subjects")),
        pulsar_admin(ask, "schemas", "get", "TOPIC"),
    ]


def subject_commands(ask: AdminRequest, told: Facts) -> list[Command]:
    """Return what says the same on a command line."""
    place = f"http://SCHEMA-REGISTRY/subjects/{told['subject']}/versions/{told['version']}"
    return [("curl", line("curl", place))]


SCHEMAS = ConsolePage("schemas", "Schemas", facts, commands)
SUBJECT = ConsolePage("subject", "Subject", subject_facts, subject_commands, in_menu=False)
