"""Grants, of a namespace or of one topic: given and taken away."""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import quote

from magnetar.admin.errors import Forbidden, Invalid
from magnetar.admin.rest import ROOT
from magnetar.admin.rights import check
from magnetar.auth import Right
from magnetar.auth.rights import Tenant
from magnetar.console.actions.action import ActionOutcome, ConsoleAction, Doing, FormField
from magnetar.console.page import Command, access_of, magnetar, pulsar_admin
from magnetar.console.rendering import url

_ACTIONS = ("produce", "consume", "functions", "sources", "sinks", "packages")


def _allowed(question: str, doing: Doing) -> bool:
    broker = doing.ask.services.broker
    if not doing.text("target"):
        return any(doing.may(Right.administer, Tenant(each)) for each in broker.namespaces.tenants())
    try:
        check(access_of(doing.ask), question, {"target": doing.text("target")}, broker)
    except Forbidden:
        return False
    return True


def _target() -> FormField:
    return FormField(
        "target", "Namespace or topic", required=True, help="tenant/namespace, or a topic's name"
    )


async def _grant_fields(doing: Doing) -> Sequence[FormField]:
    marked = "yes"
    return [
        FormField("role", "Role", required=True),
        _target(),
        *(FormField(each, f"may {each}", "check", marked if each == "consume" else "") for each in _ACTIONS),
    ]


async def _grant(doing: Doing) -> ActionOutcome:
    actions = [each for each in _ACTIONS if doing.text(each)]
    if not actions:
        raise Invalid("nothing is granted", "Choose what the role may do, or take its grant away.")
    role, target = doing.needed("role"), doing.needed("target")
    await _ask(doing, "grant", {"target": target, "role": role, "actions": actions})
    return ActionOutcome(
        f"{role} may {', '.join(actions)} in {target}, and nothing else by this grant.", links=_links(role)
    )


async def _ask(doing: Doing, question: str, given: dict[str, object]) -> None:
    await doing.by_rest("POST", f"/{ROOT.lstrip('/')}/{quote(question)}", body=json.dumps(given).encode())


def _links(role: str) -> list[tuple[str, str]]:
    return [("Permissions", url("permissions", q=role))]


def _is_topic(target: str) -> bool:
    return "://" in target or target.count("/") != 1


def _grant_commands(doing: Doing) -> Sequence[Command]:
    role, target = doing.text("role", "ROLE"), doing.text("target", "public/default")
    actions = [each for each in _ACTIONS if doing.text(each)] or ["consume"]
    words = ("topics", "grant-permission") if _is_topic(target) else ("namespaces", "grant-permission")
    return [
        magnetar("permission", "grant", target, "--role", role, "--actions", ",".join(actions)),
        pulsar_admin(doing.ask, *words, target, "--role", role, "--actions", ",".join(actions)),
    ]


GRANT = ConsoleAction(
    "grant",
    "Grant permissions",
    (),
    ("permissions",),
    lambda doing: _allowed("grant", doing),
    _grant_fields,
    _grant,
    _grant_commands,
    "Grant",
    "Gives a role exactly these permissions on a namespace or a topic; what it was granted there before is replaced.",
)


async def _revoke_fields(doing: Doing) -> Sequence[FormField]:
    return [FormField("role", "Role", required=True), _target()]


async def _revoke(doing: Doing) -> ActionOutcome:
    role, target = doing.needed("role"), doing.needed("target")
    await _ask(doing, "revoke", {"target": target, "role": role})
    return ActionOutcome(f"{role} has no grant on {target} itself any more.", links=_links(role))


def _revoke_commands(doing: Doing) -> Sequence[Command]:
    role, target = doing.text("role", "ROLE"), doing.text("target", "public/default")
    words = ("topics", "revoke-permission") if _is_topic(target) else ("namespaces", "revoke-permission")
    return [
        magnetar("permission", "revoke", target, "--role", role),
        pulsar_admin(doing.ask, *words, target, "--role", role),
    ]


REVOKE = ConsoleAction(
    "revoke",
    "Revoke permissions",
    (),
    ("permissions",),
    lambda doing: _allowed("revoke", doing),
    _revoke_fields,
    _revoke,
    _revoke_commands,
    "Revoke",
    "Takes from a role all that it was granted on exactly this namespace or topic, immediately.",
)
