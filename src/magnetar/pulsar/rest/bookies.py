"""Bookies, and on which racks they are, as ``pulsar-admin bookies`` has it. Ledgers are placed by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magnetar.ledger.bookie_racks import (
    BookieInfo,
    Groups,
    RacksInvalid,
    change_racks,
    read_racks,
    with_bookie,
    without_bookie,
)
from magnetar.pulsar.rest.request import AdminRequest, RequiredLevel, RestError, RestRoute


async def bookies(ask: AdminRequest) -> dict[str, Any]:
    """List the bookies of the cluster, also those that are away."""
    return {"bookies": [{"bookieId": each} for each in await ask.services.broker.engine.bookie_ids()]}


async def racks(ask: AdminRequest) -> dict[str, Any]:
    """Return the racks of all bookies that have one, by group."""
    groups = await _groups(ask)
    return {
        group: {name: info.told() for name, info in sorted(members.items())}
        for group, members in sorted(groups.items())
    }


async def rack(ask: AdminRequest) -> dict[str, str]:
    """Return the rack of one bookie."""
    return _info_of(await _groups(ask), ask.path["bookie"]).told()


async def set_rack(ask: AdminRequest) -> None:
    """Say on which rack a bookie is, and of which group; ledgers made from then on go by it."""
    group, told = ask.query.get("group", ""), ask.json()
    if not group:
        raise RestError(412, "Bookie 'group' parameters is missing")
    if not isinstance(told, dict) or not isinstance(told.get("rack"), str) or not told["rack"].strip("/"):
        raise RestError(412, "Bookie 'rack' parameters is missing")
    hostname = told.get("hostname") or ""
    if not isinstance(hostname, str):
        raise RestError(412, "Bookie 'hostname' is no text")
    info = BookieInfo(told["rack"], hostname)
    await _change(ask, lambda groups: with_bookie(groups, group, ask.path["bookie"], info))


async def forget_rack(ask: AdminRequest) -> None:
    """Have a bookie be on no rack, and of no group."""
    name = ask.path["bookie"]

    def change(groups: Groups) -> Groups:
        _info_of(groups, name)
        return without_bookie(groups, name)

    await _change(ask, change)


def _info_of(groups: Groups, name: str) -> BookieInfo:
    for members in groups.values():
        if name in members:
            return members[name]
    raise RestError(404, f"Bookie address not found: {name}")


async def _groups(ask: AdminRequest) -> Groups:
    try:
        return await read_racks(ask.services.broker.store)
    except RacksInvalid as error:
        raise RestError(500, str(error)) from None


async def _change(ask: AdminRequest, change: Callable[[Groups], Groups]) -> None:
    try:
        await change_racks(ask.services.broker.store, change)
    except RacksInvalid as error:
        raise RestError(500, str(error)) from None


ROUTES = (
    RestRoute("GET", "/bookies/all", bookies, RequiredLevel.super_user),
    RestRoute("GET", "/bookies/racks-info", racks, RequiredLevel.super_user),
    RestRoute("GET", "/bookies/racks-info/{bookie}", rack, RequiredLevel.super_user),
    RestRoute("POST", "/bookies/racks-info/{bookie}", set_rack, RequiredLevel.super_user),
    RestRoute("DELETE", "/bookies/racks-info/{bookie}", forget_rack, RequiredLevel.super_user),
)
