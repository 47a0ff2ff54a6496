"""All permissions as Kafka's ACLs: those that are stored as such, and Pulsar's grants in the same terms.

    Pulsar                                    Kafka
    consume on a topic                        READ on the topic, literal
    produce on a topic                        WRITE on the topic, literal
    consume, produce in a namespace           READ, WRITE on the prefix tenant/namespace/
    an admin of a tenant                      ALL on the prefix tenant/
    a grant to the role *, with wildcards     the same to User:*

Pulsar's grants are shown this way, and revoked when such an entry is deleted; an entry that a grant already covers is
not created again. Kafka entries that Pulsar can express are listed to its tools among the grants of a topic or
namespace, and are deleted when the role's grant there is revoked. Kafka cannot express subscriptions restricted to some
roles, actions like functions, grants to ``team.*``, and the rule that a role that may consume anything may use any
group; Pulsar cannot express DENY, hosts, groups, transactional ids, the cluster, and prefixes that are no namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from magnetar.auth.acl_store import Acls
from magnetar.auth.acls import (
    ANYBODY,
    ANYWHERE,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from magnetar.base.errors import InvalidTopic
from magnetar.topics.grants import AuthAction, AuthPolicies, Grants
from magnetar.topics.names import Naming, TopicName

if TYPE_CHECKING:
    from magnetar.topics.namespaces import Namespaces

_OPERATIONS = {AuthAction.CONSUME: Operation.READ, AuthAction.PRODUCE: Operation.WRITE}
_ACTIONS = {operation: frozenset({action}) for action, operation in _OPERATIONS.items()} | {
    Operation.ALL: frozenset(_OPERATIONS)
}
_USER = "User:"


class Grant(NamedTuple):
    """One Pulsar grant: of an action, or without one, of a tenant's administration."""

    role: str
    action: AuthAction | None
    scope: str
    """A topic in full, ``tenant/namespace``, or a tenant."""


class Policies:
    """Both stores as one."""

    def __init__(self, namespaces: Namespaces, acls: Acls, naming: Naming, *, wildcards: bool) -> None:
        """``wildcards``: a grant to the role ``*`` is one to all."""
        self._namespaces = namespaces
        self._acls = acls
        self._naming = naming
        self._wildcards = wildcards

    def all(self) -> list[Acl]:
        """Return all entries, each once."""
        return list(dict.fromkeys([*self._acls.all(), *self._granted()]))

    async def create(self, acls: Iterable[Acl]) -> None:
        """Store entries, except those that grants already cover."""
        granted = self._granted()
        await self._acls.create(each for each in acls if each not in granted)

    async def delete(self, acls: Iterable[Acl]) -> None:
        """Delete entries, and revoke the grants that amount to the same."""
        wanted = list(acls)
        granted = self._granted()
        await self._acls.delete(wanted)
        for acl in wanted:
            if grant := granted.get(acl):
                await self._revoke(grant)

    async def _revoke(self, grant: Grant) -> None:
        role, action, scope = grant
        if action is None:
            left = self._namespaces.admin_roles(scope) - {role}
            await self._namespaces.set_admin_roles(scope, left)
            return
        topic = scope if "://" in scope else None
        namespace = scope if topic is None else TopicName.parse(topic).namespace_name

        def without(before: AuthPolicies) -> AuthPolicies:
            rows = before.namespace if topic is None else before.topics.get(topic, {})
            left = rows.get(role, frozenset()) - {action}
            return before.granted(role, left, topic) if left else before.revoked(role, topic)

        await self._namespaces.change_auth_policies(namespace, without)

    def _granted(self) -> dict[Acl, Grant]:
        return {acl: grant for grant in self._grants() for acl in self._told(grant)}

    def _grants(self) -> Iterator[Grant]:
        for tenant in self._namespaces.tenants():
            for role in self._namespaces.admin_roles(tenant):
                yield Grant(role, None, tenant)
        for namespace in self._namespaces.names():
            auth = self._namespaces.policies(namespace).auth
            for scope, rows in ((namespace, auth.namespace), *auth.topics.items()):
                for role, actions in rows.items():
                    for action in actions:
                        yield Grant(role, action, scope)

    def _told(self, grant: Grant) -> Iterator[Acl]:
        role, action, scope = grant
        if self._wildcards and "*" in role and role != "*":
            return
        principal = ANYBODY if self._wildcards and role == "*" else f"{_USER}{role}"
        operation = Operation.ALL if action is None else _OPERATIONS.get(action)
        if operation is None or (role == "*" and not self._wildcards):
            return
        if "://" in scope:
            if not scope.startswith("persistent://"):
                return
            name, pattern = self._naming.kafka_name(TopicName.parse(scope)), PatternType.LITERAL
        else:
            name, pattern = f"{scope}/", PatternType.PREFIXED
        yield Acl(ResourceType.TOPIC, name, pattern, principal, ANYWHERE, operation, Permission.ALLOW)

    # Pulsar's view.

    def of_namespace(self, namespace: str) -> Grants:
        """Return what Kafka entries allow on all topics of a namespace, in Pulsar's words."""
        return self._as_grants({f"{namespace}/"}, PatternType.PREFIXED)

    def of_topic(self, topic: TopicName) -> Grants:
        """Return what Kafka entries allow on exactly this topic, in Pulsar's words."""
        return self._as_grants(set(self._names(topic)), PatternType.LITERAL)

    def topics_in(self, namespace: str) -> dict[str, Grants]:
        """Return what Kafka entries allow on topics of a namespace, by the topics' full names."""
        found: dict[str, dict[str, frozenset[AuthAction]]] = {}
        for acl in self._acls.all():
            if acl.pattern_type is PatternType.LITERAL and self._is_allowance(acl):
                topic = self._parsed(acl.resource_name)
                if topic is not None and topic.namespace_name == namespace:
                    _add(found.setdefault(str(topic), {}), acl)
        return dict(found)

    async def revoke(self, namespace: str, role: str, topic: TopicName | None = None) -> bool:
        """Delete the entries that allow a role something on exactly this; return whether there were any."""
        names = {f"{namespace}/"} if topic is None else set(self._names(topic))
        pattern = PatternType.PREFIXED if topic is None else PatternType.LITERAL
        found = [each for each in self._about(names, pattern) if each.principal == f"{_USER}{role}"]
        await self._acls.delete(found)
        return bool(found)

    def others(self) -> list[Acl]:
        """Return the entries that Pulsar cannot express."""
        return [each for each in self._acls.all() if not self._is_expressible(each)]

    def _as_grants(self, names: set[str], pattern: PatternType) -> Grants:
        found: dict[str, frozenset[AuthAction]] = {}
        for acl in self._about(names, pattern):
            _add(found, acl)
        return found

    def _about(self, names: set[str], pattern: PatternType) -> list[Acl]:
        return [
            each
            for each in self._acls.all()
            if each.resource_name in names and each.pattern_type is pattern and self._is_allowance(each)
        ]

    def _is_allowance(self, acl: Acl) -> bool:
        return (
            acl.resource_type is ResourceType.TOPIC
            and acl.permission is Permission.ALLOW
            and acl.host == ANYWHERE
            and acl.operation in _ACTIONS
            and acl.principal.startswith(_USER)
            and (self._wildcards or acl.principal != ANYBODY)
        )

    def _is_expressible(self, acl: Acl) -> bool:
        if not self._is_allowance(acl):
            return False
        if acl.pattern_type is PatternType.LITERAL:
            return self._parsed(acl.resource_name) is not None
        return acl.resource_name.count("/") == 2 and acl.resource_name.removesuffix("/") in self._namespaces

    def _names(self, topic: TopicName) -> tuple[str, str]:
        return self._naming.kafka_name(topic), f"{topic.tenant}/{topic.namespace}/{topic.local}"

    def _parsed(self, name: str) -> TopicName | None:
        try:
            return self._naming.parse(name)
        except InvalidTopic:
            return None


def _add(grants: dict[str, frozenset[AuthAction]], acl: Acl) -> None:
    role = acl.principal.removeprefix(_USER)
    grants[role] = grants.get(role, frozenset()) | _ACTIONS[acl.operation]
