"""Kafka's access control lists: one entry, the entries that a filter selects, and what they decide together.

    principal   User:alice, or User:* for all
    host        the client's address, or *
    resource    a type, and a name: literal, * for all of them, or the beginning of names
    operation   one of Kafka's, or ALL
    permission  ALLOW or DENY; a DENY takes precedence over every ALLOW

Numbers are those of Kafka's requests, rules those of its StandardAuthorizer (KIP-11, KIP-290, KIP-801).
"""

from __future__ import annotations

import hashlib
import json
from bisect import insort
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, IntEnum, auto
from typing import Any, Final, NamedTuple

ANYBODY: Final = "User:*"
ANYWHERE: Final = "*"
EVERYWHERE: Final = ""
"""The host of a client whose address is unknown: what is denied to any address is denied to it."""
ALL_NAMES: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"


class ResourceType(IntEnum):
    """The type of an ACL's resource; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The kind of match of a resource's name; ANY and MATCH are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """An operation that a client requests; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """ALLOW or DENY; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_ALSO = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""Operations, each with those that imply it."""
_ALLOWING = {each: frozenset({each, Operation.ALL, *_ALSO.get(each, ())}) for each in Operation}
_DENYING = {each: frozenset({each, Operation.ALL}) for each in Operation}


class Acl(NamedTuple):
    """One access control list entry, which Kafka calls an ACL binding."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    @property
    def id(self) -> str:
        """An id that is unique to the content of the entry."""
        return hashlib.sha256(encode_acl(self)).hexdigest()[:32]


class AclFilter(NamedTuple):
    """Selects entries; None and ANY select all, and MATCH those that apply to a resource of the name."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = Operation.ANY
    permission: int = Permission.ANY

    def fits(self, acl: Acl) -> bool:
        """True if the filter selects this entry."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._names(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _names(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type != PatternType.MATCH:
            return self.resource_name == acl.resource_name
        if acl.pattern_type is PatternType.LITERAL:
            return acl.resource_name in (self.resource_name, ALL_NAMES)
        return self.resource_name.startswith(acl.resource_name)


def encode_acl(acl: Acl) -> bytes:
    """Write an entry as JSON, in Kafka's words."""
    return json.dumps(
        {
            "resourceType": acl.resource_type.name,
            "resourceName": acl.resource_name,
            "patternType": acl.pattern_type.name,
            "principal": acl.principal,
            "host": acl.host,
            "operation": acl.operation.name,
            "permissionType": acl.permission.name,
        }
    ).encode()


def decode_acl(value: bytes) -> Acl:
    """Read what `encode_acl` wrote; raise ``ValueError``."""
    try:
        found: dict[str, Any] = json.loads(value)
        return Acl(
            ResourceType[found["resourceType"]],
            str(found["resourceName"]),
            PatternType[found["patternType"]],
            str(found["principal"]),
            str(found["host"]),
            Operation[found["operation"]],
            Permission[found["permissionType"]],
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an ACL: {error!r}") from None


class Verdict(Enum):
    """The decision of all entries together on a principal, an operation and a resource."""

    DENIED = auto()
    ALLOWED = auto()
    NOT_NAMED = auto()
    """There are entries about the resource, and none allows the principal the operation."""
    NO_ACL = auto()
    """There is no entry about the resource."""


Hosts = dict[str, set[Operation]]
"""By host, the operations that entries name."""


class _Entries:
    """The entries of one pattern: by principal, those that allow and those that deny."""

    __slots__ = ("allow", "count", "deny")

    def __init__(self) -> None:
        self.allow: dict[str, Hosts] = {}
        self.deny: dict[str, Hosts] = {}
        self.count = 0

    def table(self, acl: Acl) -> dict[str, Hosts]:
        return self.allow if acl.permission is Permission.ALLOW else self.deny

    def add(self, acl: Acl) -> None:
        self.table(acl).setdefault(acl.principal, {}).setdefault(acl.host, set()).add(acl.operation)
        self.count += 1

    def remove(self, acl: Acl) -> None:
        table = self.table(acl)
        hosts = table[acl.principal]
        hosts[acl.host].discard(acl.operation)
        if not hosts[acl.host]:
            del hosts[acl.host]
        if not hosts:
            del table[acl.principal]
        self.count -= 1


def _named(table: dict[str, Hosts], principal: str, host: str, operations: frozenset[Operation]) -> bool:
    """True if the table has one of these operations for a principal at its host, or at any host for `EVERYWHERE`."""
    for who in (principal, ANYBODY):
        hosts = table.get(who)
        if hosts is not None:
            for where in hosts if host == EVERYWHERE else (host, ANYWHERE):
                found = hosts.get(where)
                if found is not None and not found.isdisjoint(operations):
                    return True
    return False


class AclIndex:
    """All entries, found by the names of resources.

    A decision looks at the literal name, at ``*``, and at as many prefixes as there are lengths of prefixes, however
    many entries there are.
    """

    def __init__(self) -> None:
        self._literal: dict[ResourceType, dict[str, _Entries]] = {each: {} for each in ResourceType}
        self._prefixed: dict[ResourceType, dict[str, _Entries]] = {each: {} for each in ResourceType}
        self._lengths: dict[ResourceType, list[int]] = {each: [] for each in ResourceType}
        """The lengths of prefixes, each once, sorted."""
        self._with_length: dict[tuple[ResourceType, int], int] = {}
        self._of_principal: dict[str, set[Acl]] = {}
        """The entries that allow a principal something, for requests about any resource."""

    def __bool__(self) -> bool:
        return any(self._literal.values()) or any(self._prefixed.values())

    def add(self, acl: Acl) -> None:
        """Add an entry that is not there."""
        found = self._tables(acl).get(acl.resource_name)
        if found is None:
            found = self._tables(acl)[acl.resource_name] = _Entries()
            if acl.pattern_type is PatternType.PREFIXED:
                self._count_length(acl, 1)
        found.add(acl)
        if acl.permission is Permission.ALLOW:
            self._of_principal.setdefault(acl.principal, set()).add(acl)

    def remove(self, acl: Acl) -> None:
        """Remove an entry that is there."""
        found = self._tables(acl)[acl.resource_name]
        found.remove(acl)
        if not found.count:
            del self._tables(acl)[acl.resource_name]
            if acl.pattern_type is PatternType.PREFIXED:
                self._count_length(acl, -1)
        if acl.permission is Permission.ALLOW:
            self._of_principal[acl.principal].discard(acl)
            if not self._of_principal[acl.principal]:
                del self._of_principal[acl.principal]

    def _tables(self, acl: Acl) -> dict[str, _Entries]:
        tables = self._literal if acl.pattern_type is PatternType.LITERAL else self._prefixed
        return tables[acl.resource_type]

    def _count_length(self, acl: Acl, by: int) -> None:
        size = len(acl.resource_name)
        key = (acl.resource_type, size)
        count = self._with_length[key] = self._with_length.get(key, 0) + by
        if by > 0 and count == 1:
            insort(self._lengths[acl.resource_type], size)
        elif not count:
            self._lengths[acl.resource_type].remove(size)
            del self._with_length[key]

    def _about(self, kind: ResourceType, names: Sequence[str]) -> Iterator[_Entries]:
        literal, prefixed = self._literal[kind], self._prefixed[kind]
        if everything := literal.get(ALL_NAMES):
            yield everything
        for name in names:
            if name != ALL_NAMES and (found := literal.get(name)):
                yield found
            for size in self._lengths[kind]:
                if size > len(name):
                    break
                if found := prefixed.get(name[:size]):
                    yield found

    def verdict(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, names: Sequence[str]
    ) -> Verdict:
        """Return the decision on ``principal`` at ``host`` for an operation on a resource of these names."""
        verdict = Verdict.NO_ACL
        allowing, denying = _ALLOWING[operation], _DENYING[operation]
        for entries in self._about(kind, names):
            if _named(entries.deny, principal, host, denying):
                return Verdict.DENIED
            if verdict is not Verdict.ALLOWED:
                allowed = _named(entries.allow, principal, host or ANYWHERE, allowing)
                verdict = Verdict.ALLOWED if allowed else Verdict.NOT_NAMED
        return verdict

    def gives(self, kind: ResourceType, names: Sequence[str]) -> bool:
        """True if entries for exactly these names, or for prefixes of them, allow any principal anything."""
        everything = self._literal[kind].get(ALL_NAMES)
        return any(each.allow for each in self._about(kind, names) if each is not everything)

    def allows_any(
        self,
        principal: str,
        host: str,
        operations: Iterable[Operation],
        kind: ResourceType,
        beneath: str | None = None,
    ) -> bool:
        """True if a principal may do one of these with any resource at all, whether it exists or not (KIP-679).

        ``beneath`` limits this to names that begin so; the empty string to names without a slash.
        """
        wanted = tuple(operations)
        return any(
            acl.resource_type is kind
            and acl.host in (host, ANYWHERE)
            and (beneath is None or _may_be_beneath(acl, beneath))
            and any(
                acl.operation in _ALLOWING[each] and not self._denies_all_of(acl, principal, host, each)
                for each in wanted
            )
            for who in (principal, ANYBODY)
            for acl in self._of_principal.get(who, ())
        )

    def mentions(self, principal: str) -> bool:
        """True if any entry that allows something names the principal."""
        return principal in self._of_principal

    def _denies_all_of(self, acl: Acl, principal: str, host: str, operation: Operation) -> bool:
        """True if everything that an entry allows is denied by others."""
        denying, name = _DENYING[operation], acl.resource_name
        kind = acl.resource_type
        everything = self._literal[kind].get(ALL_NAMES)
        if everything is not None and _named(everything.deny, principal, host, denying):
            return True
        if acl.pattern_type is PatternType.LITERAL and name == ALL_NAMES:
            return False
        about = [self._prefixed[kind].get(name[:size]) for size in self._lengths[kind] if size <= len(name)]
        if acl.pattern_type is PatternType.LITERAL:
            about.append(self._literal[kind].get(name))
        return any(each is not None and _named(each.deny, principal, host, denying) for each in about)


def _may_be_beneath(acl: Acl, beneath: str) -> bool:
    name = acl.resource_name
    if acl.pattern_type is PatternType.LITERAL:
        return name == ALL_NAMES or (name.startswith(beneath) if beneath else "/" not in name)
    return name.startswith(beneath) or beneath.startswith(name) if beneath else "/" not in name
