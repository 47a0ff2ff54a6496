"""The kinds of groups as a table, the groups of one partition under their names, and how a name changes its kind.

A kind is a folder whose module ``kind`` implements `KindModule`. It is loaded with the first group of the kind, in a
request or in the log: a broker has only the modules of kinds that it has groups of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, cast

from magnetar.coordination.decision import Fact
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.group import ClassicGroup
from magnetar.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from magnetar.kafka.coordinators.consumer.group import ConsumerGroup
    from magnetar.kafka.coordinators.consumer.members import ConsumerGroups
    from magnetar.kafka.coordinators.modern.facts import ModernFact
    from magnetar.kafka.coordinators.modern.surroundings import Surroundings
    from magnetar.kafka.coordinators.share.group import ShareGroup
    from magnetar.kafka.coordinators.share.members import ShareGroups
    from magnetar.kafka.coordinators.streams.group import StreamsGroup
    from magnetar.kafka.coordinators.streams.members import StreamsGroups
    from magnetar.kafka.coordinators.views import GroupView, Viewed

AnyGroup: TypeAlias = "ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup"
G = TypeVar("G")
R = TypeVar("R")


class KindModule(Protocol):
    """The interface of a kind's module ``kind``."""

    @property
    def new_group(self) -> Callable[..., Any]: ...
    @property
    def new_rules(self) -> Callable[[Surroundings], Any]: ...
    @property
    def READERS(self) -> Mapping[bytes, Callable[[bytes, bytes | None], ModernFact[Any]]]: ...
    @property
    def facts_of(self) -> Callable[[Any], Iterable[Fact]]: ...
    @property
    def group_end(self) -> Callable[[Any], Iterable[Fact]]: ...
    @property
    def view(self) -> Callable[[Any, Viewed], GroupView]: ...


class GroupKind(Generic[G, R]):
    """One kind of groups (``G``), and its rules (``R``)."""

    def __init__(
        self,
        name: str,
        records: Iterable[int] = (),
        *,
        has_offsets: bool = True,
        replaces: Callable[[AnyGroup], bool] = lambda known: known.yields,
        names_strangers: bool = True,
        module: str = "",
    ) -> None:
        """``records`` are the kinds of its records; ``replaces`` decides which other groups give way to it."""
        self.name = name
        self.records = frozenset(kind.to_bytes(2, "big") for kind in records)
        self.has_offsets = has_offsets
        """Whether its groups commit offsets: those of a group whose name they take over become theirs."""
        self._replaces = replaces
        self._names_strangers = names_strangers
        """False if a member that does not join is answered "not found" for a group of another kind."""
        self._path = module or f"magnetar.kafka.coordinators.{name}.kind"
        self._module: KindModule | None = None

    @property
    def module(self) -> KindModule:
        """The kind's module ``kind``, loaded with the first use."""
        if self._module is None:
            self._module = cast(KindModule, import_module(self._path))
        return self._module

    def read(self, stated: Fact) -> ModernFact[G]:
        """Return the content of a record of this kind; raise ``WireError`` for damaged ones."""
        value = None if stated.value is None else stated.value[2:]
        return self.module.READERS[stated.key[:2]](stated.key[2:], value)

    def own(self, group: AnyGroup | None) -> G | None:
        """Return the group if it is of this kind."""
        return cast(G, group) if group is not None and group.kind == self.name else None

    def new(self, group_id: str, known: AnyGroup | None) -> G:
        """Return a new group, with the offsets of the one that had its name."""
        offsets = known.offsets if known is not None and self.has_offsets else {}
        return cast(G, self.module.new_group(group_id, offsets=offsets))

    def find(self, known: AnyGroup | None, group_id: str) -> G:
        """Return the group of that name; refuse one of another kind, or none."""
        group = self.own(known)
        if group is None:
            raise self.refused(known, group_id)
        return group

    def obtain(self, known: AnyGroup | None, group_id: str, *, create: bool) -> G:
        """Return the group of that name, or with ``create`` a new one if there is none, or one that gives way."""
        group = self.own(known)
        if group is not None:
            return group
        if create and (known is None or self._replaces(known)):
            return self.new(group_id, known)
        if known is None or not (create or self._names_strangers):
            raise self._absent(group_id)
        raise self.refused(known, group_id)

    def refused(self, known: AnyGroup | None, group_id: str) -> CoordinatorRefused:
        """Return the refusal of a request for a group of this kind."""
        if known is None:
            return CoordinatorRefused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return CoordinatorRefused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {self.name} group."
        )

    def _absent(self, group_id: str) -> CoordinatorRefused:
        return CoordinatorRefused(
            ErrorCode.GROUP_ID_NOT_FOUND, f"{self.name.capitalize()} group {group_id} not found."
        )


CONSUMER: GroupKind[ConsumerGroup, ConsumerGroups] = GroupKind(
    "consumer", (3, 4, 5, 6, 7, 8, 16), names_strangers=False
)
"""Of the consumer protocol (KIP-848)."""
STREAMS: GroupKind[StreamsGroup, StreamsGroups] = GroupKind("streams", (17, 19, 20, 21, 22, 23))
"""Of the streams protocol (KIP-1071)."""
SHARE: GroupKind[ShareGroup, ShareGroups] = GroupKind(
    "share", (10, 11, 12, 13, 14, 15), has_offsets=False, replaces=lambda known: known.is_shadow
)
"""Share groups (KIP-932); of other groups only what stands for a linked subscription gives them its name."""
CLASSIC: GroupKind[ClassicGroup, Any] = GroupKind(
    "classic", module="magnetar.kafka.coordinators.classic_kind"
)
"""Of the classic protocol; their records are read where offsets are (`magnetar.kafka.coordinators.facts`)."""
MODERN: tuple[GroupKind[Any, Any], ...] = (CONSUMER, STREAMS, SHARE)
"""The kinds whose modules are loaded when needed, in the order in which their deadlines are checked."""
KINDS: Mapping[str, GroupKind[Any, Any]] = {kind.name: kind for kind in (*MODERN, CLASSIC)}
_BY_RECORD = {record: kind for kind in MODERN for record in kind.records}


def kind_of(key: bytes) -> GroupKind[Any, Any] | None:
    """Return the kind of groups that a record is about, by its key; None for an unknown one."""
    return _BY_RECORD.get(key[:2])


class Kinds:
    """All groups by their ids. ``forget`` cancels a group's deadlines."""

    def __init__(self, groups: dict[str, AnyGroup], forget: Callable[[AnyGroup], None]) -> None:
        self.groups = groups
        self._forget = forget

    def obtain(self, kind: GroupKind[G, R], group_id: str, *, create: bool) -> tuple[G, tuple[Fact, ...]]:
        """Return the group of a kind and a name, and the facts that end the group that had the name before.

        An empty group of another kind gives way, and leaves its offsets.
        """
        known = self.groups.get(group_id)
        group = kind.obtain(known, group_id, create=create)
        if known is None or known is group:
            return group, ()
        return group, tuple(end_of(known)) if known.live_facts() else ()

    def take(self, group: AnyGroup) -> None:
        """Store a group under its name; it replaces the one that had the name before."""
        known = self.groups.get(group.group_id)
        if known is not group:
            if known is not None:
                self._forget(known)
            self.groups[group.group_id] = group

    def end(self, group: AnyGroup) -> Iterable[Fact]:
        """Remove a group, and return the facts of its end."""
        facts = list(end_of(group))
        self._forget(group)
        self.groups.pop(group.group_id, None)
        return facts


def end_of(group: AnyGroup) -> Iterable[Fact]:
    """Return the facts of a group's end, without those of its offsets."""
    return KINDS[group.kind].module.group_end(group)


def facts_about(group: AnyGroup) -> Iterable[Fact]:
    """Return the facts that make a group what it is, without its offsets."""
    return KINDS[group.kind].module.facts_of(group)
