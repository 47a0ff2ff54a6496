"""Where configurations of groups are kept: in the metadata store, at ``/magnetar/group-configs/ROOM/GROUP``.

A room is the topic that the groups are kept in, so tenants' groups of one name are configured apart; both names are
written as in URLs. The value is a JSON object of texts; beside them stands the role that named the dead-letter queue,
or said what goes there, where there are roles. Every broker follows what is there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar, cast
from urllib.parse import quote, unquote

from magnetar.base.setting import HandlerSettings
from magnetar.kafka.coordinators.configs import DEAD_LETTER_TOPIC, OF_DEAD_LETTERS, Own, check_own, with_own
from magnetar.metadata import MUST_NOT_EXIST, Delete, MetadataCorrupt, Op, Put, Stored
from magnetar.node.broker import Broker

_ROOT = "/magnetar/group-configs"
_NAMED_BY = "magnetar.deadletterqueue.named.by"
Part = TypeVar("Part", bound=HandlerSettings)


class _Kept(NamedTuple):
    texts: Mapping[str, str]
    version: int
    named_by: str = ""


_NOTHING = _Kept({}, MUST_NOT_EXIST)


class GroupConfigStore:
    """Those of all groups of this broker's metadata; to be followed before anybody asks."""

    root = _ROOT

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._kept: dict[str, dict[str, _Kept]] = {}
        """By room and group."""
        self._made: dict[tuple[str, str, type], tuple[object, object]] = {}
        """What settings of a part came to for a group: those they were made from, and the outcome."""

    def room(self, topic: str) -> RoomConfigs:
        """Return the configurations of the groups that are kept in a topic."""
        return RoomConfigs(self, topic)

    def of_room(self, room: str) -> Mapping[str, _Kept]:
        """Return what is kept of one room's groups."""
        return self._kept.get(room, {})

    def of(self, room: str, group_id: str, part: type[Part]) -> Part:
        """Return a part of the settings as it is in force for a group."""
        settings = self.broker.settings
        base = settings.of(part)
        kept = self._kept.get(room, {}).get(group_id)
        if kept is None:
            return base
        key = room, group_id, part
        made = self._made.get(key)
        if made is None or made[0] is not settings:
            made = self._made[key] = settings, with_own(base, kept.texts, settings)
        return cast(Part, made[1])

    def known(self) -> Iterable[str]:
        """Return the paths that something is known of."""
        return [_path(room, group_id) for room, groups in self._kept.items() for group_id in groups]

    def apply(self, path: str, stored: Stored | None) -> None:
        """Take over what is stored for one group."""
        room, separator, group_id = path.removeprefix(f"{_ROOT}/").partition("/")
        if not separator:
            return
        room, group_id = unquote(room), unquote(group_id)
        groups = self._kept.setdefault(room, {})
        if stored is None:
            groups.pop(group_id, None)
        else:
            texts = _decode(path, stored.value)
            groups[group_id] = _Kept(texts, stored.version, texts.pop(_NAMED_BY, ""))
        for key in [key for key in self._made if key[:2] == (room, group_id)]:
            del self._made[key]

    async def change(
        self, room: str, group_id: str, change: Callable[[Own], Own], *, by: str, validate_only: bool
    ) -> None:
        """Put what ``change`` makes of a group's own configurations in their place; raise `InvalidConfig`.

        ``by`` is the role that asks for it.
        """

        def plan() -> list[Op]:
            kept = self.of_room(room).get(group_id, _NOTHING)
            own = change(dict(kept.texts))
            check_own(own, self.broker.settings)
            if own == kept.texts:
                return []
            path = _path(room, group_id)
            if not own:
                return [Delete(path, kept.version)]
            is_other = any(own.get(name) != kept.texts.get(name) for name in OF_DEAD_LETTERS)
            named_by = by if is_other else kept.named_by
            texts = {**own, _NAMED_BY: named_by} if named_by and DEAD_LETTER_TOPIC in own else own
            return [Put(path, json.dumps(texts, sort_keys=True).encode(), kept.version)]

        if validate_only:
            plan()
        else:
            await self.broker.metadata.change(plan)


class RoomConfigs:
    """Implements `GroupConfigs` for the groups of one coordinator."""

    def __init__(self, store: GroupConfigStore, room: str) -> None:
        self._store = store
        self._room = room

    def of(self, group_id: str, part: type[Part]) -> Part:
        """Return a part of the settings as it is in force for a group."""
        return self._store.of(self._room, group_id, part)

    def own(self, group_id: str) -> Mapping[str, str]:
        """Return what is configured for one group."""
        return self._store.of_room(self._room).get(group_id, _NOTHING).texts

    def groups(self) -> Iterable[str]:
        """Return the groups that have configurations of their own."""
        return list(self._store.of_room(self._room))

    def named_by(self, group_id: str) -> str:
        """Return the role that named a group's dead-letter queue; empty for none, and for the broker's settings."""
        return self._store.of_room(self._room).get(group_id, _NOTHING).named_by

    async def change(
        self, group_id: str, change: Callable[[Own], Own], *, by: str = "", validate_only: bool = False
    ) -> None:
        """Put what ``change`` makes of a group's own configurations in their place; raise `InvalidConfig`."""
        await self._store.change(self._room, group_id, change, by=by, validate_only=validate_only)


def _path(room: str, group_id: str) -> str:
    return f"{_ROOT}/{_node(room)}/{_node(group_id)}"


def _node(name: str) -> str:
    # A group may be called "..", a node of ZooKeeper may not.
    return quote(name, safe="").replace(".", "%2E")


def _decode(path: str, value: bytes) -> dict[str, str]:
    try:
        return {str(key): str(text) for key, text in json.loads(value).items()}
    except (ValueError, AttributeError) as error:
        raise MetadataCorrupt(path, f"not a group's configurations: {error}") from error
