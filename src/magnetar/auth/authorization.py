"""What a role may do: super users everything, a tenant's admins everything in it, others what they were granted.

`may` is the one place that decides, for Kafka's requests, Pulsar's commands, the admin REST and the schema registry:
each names the `Right` and its resource, and has no rule of its own. A right can be granted in two ways, by Pulsar's
grants and by Kafka's ACLs, and either suffices; but what an ACL denies is denied to all but super users.
Decisions are remembered per role and address until any grant changes: a repeated check is one dictionary lookup.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakSet, WeakValueDictionary

from magnetar.auth.acls import CLUSTER_NAME, AclIndex, Operation, ResourceType, Verdict
from magnetar.auth.rights import (
    Group,
    Resource,
    Right,
    Subscribed,
    Tenant,
    TokenId,
    TokenOwner,
    TransactionalId,
)
from magnetar.base.errors import NamespaceNotFound
from magnetar.settings.security import SecuritySettings
from magnetar.topics.grants import AuthAction, Grants
from magnetar.topics.names import Naming, TopicName

if TYPE_CHECKING:
    from magnetar.auth.acl_store import Acls
    from magnetar.auth.authentication import Principal
    from magnetar.topics.namespaces import Namespaces


_Listed = TopicName | Group | TransactionalId | TokenOwner | TokenId
"""The resources that ACLs name."""


def may(access: Access | None, right: Right, of: Resource = None) -> bool:
    """Decide whether a role has a right; ``access`` is None where authorization is off."""
    return access is None or access.may(right, of)


_MAX_REMEMBERED = 10_000
_ACTIONS = {
    Right.see: frozenset({AuthAction.PRODUCE, AuthAction.CONSUME}),
    Right.see_configs: frozenset({AuthAction.PRODUCE, AuthAction.CONSUME}),
    Right.create_unasked: frozenset({AuthAction.PRODUCE, AuthAction.CONSUME}),
    Right.produce: frozenset({AuthAction.PRODUCE}),
    Right.consume: frozenset({AuthAction.CONSUME}),
    Right.enter: frozenset(AuthAction),
}
"""The actions of grants, any of which gives a right."""
_OF_TOPICS = frozenset({Right.see, Right.see_configs, Right.create_unasked, Right.produce, Right.consume})
_OF_GROUPS = frozenset({Right.use, Right.see, Right.delete, Right.see_configs})
_OF_TRANSACTIONS = frozenset({Right.transact, Right.find_transaction})
_ON_CLUSTER = {
    Right.describe_cluster: Operation.DESCRIBE,
    Right.create_on_cluster: Operation.CREATE,
    Right.alter_cluster: Operation.ALTER,
    Right.see_cluster_configs: Operation.DESCRIBE_CONFIGS,
    Right.alter_cluster_configs: Operation.ALTER_CONFIGS,
    Right.act_for_cluster: Operation.CLUSTER_ACTION,
    Right.produce: Operation.IDEMPOTENT_WRITE,
}
_ENTERING = (Operation.READ, Operation.WRITE, Operation.DESCRIBE)
_OPERATIONS = {
    Right.see: (Operation.DESCRIBE,),
    Right.produce: (Operation.WRITE,),
    Right.transact: (Operation.WRITE,),
    Right.find_transaction: (Operation.DESCRIBE,),
    Right.consume: (Operation.READ,),
    Right.use: (Operation.READ,),
    Right.create: (Operation.CREATE,),
    Right.create_unasked: (Operation.CREATE,),
    Right.delete: (Operation.DELETE,),
    Right.alter: (Operation.ALTER,),
    Right.create_tokens: (Operation.CREATE_TOKENS,),
    Right.describe_tokens: (Operation.DESCRIBE_TOKENS,),
    Right.see_configs: (Operation.DESCRIBE_CONFIGS,),
    Right.alter_configs: (Operation.ALTER_CONFIGS,),
    # Pulsar's administrators do all of this in one right.
    Right.administer: (Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS),
}
"""The operations that ACLs must allow, all of them, for a right to a topic, a group or a transactional id."""


class Authorization:
    """Decides for every protocol. Nothing is refused while it is not ``enabled``."""

    def __init__(
        self,
        settings: SecuritySettings,
        namespaces: Namespaces,
        acls: Acls,
        naming: Naming,
        *,
        by_tenant: bool = False,
    ) -> None:
        """``by_tenant``: each tenant has groups of its own."""
        self.enabled = settings.authorization_enabled
        self._super = frozenset(settings.super_user_roles)
        self._wildcards = settings.authorization_allow_wildcards_matching
        self._everyone = settings.allow_everyone_if_no_acl_found
        self._namespaces = namespaces
        self._acls: AclIndex = acls.index
        self._naming = naming
        self._by_tenant = by_tenant
        self._accesses: WeakValueDictionary[tuple[str, str], Access] = WeakValueDictionary()
        """The accesses in use now, by role and address."""
        self._remembering: WeakSet[Access] = WeakSet()
        """Those of them that remember anything: each is notified of a changed grant."""
        namespaces.changed.append(self.forget)
        acls.changed.append(self.forget)

    def access(self, role: str, host: str = "") -> Access | None:
        """Return the remembered decisions of a role at an address; None if authorization is off.

        All its connections share them. ACLs for a ``host`` apply to clients that are known to connect from there.
        """
        if not self.enabled:
            return None
        found = self._accesses.get((role, host))
        if found is None:
            found = self._accesses[role, host] = Access(self, role, host)
        return found

    def access_of(self, principal: Principal, host: str = "") -> Access | None:
        """Return what a client may do; through a proxy, whose address ``host`` is then, what both may."""
        if not self.enabled or not principal.proxy:
            return self.access(principal.role, host)
        return Proxied(self, principal.role, Access(self, principal.proxy, host))

    def forget(self) -> None:
        """Forget all decisions: some grant has changed."""
        for access in list(self._remembering):
            access.forget()
        self._remembering.clear()

    def remembers(self, access: Access) -> None:
        """Register an access that has begun to remember something, to notify it of changed grants."""
        self._remembering.add(access)

    def is_super(self, role: str) -> bool:
        """True if a role may do everything."""
        return role in self._super

    def may(self, role: str, right: Right, of: Resource = None, host: str = "") -> bool:
        """True if a role has a right to a topic, a group, a tenant or the whole broker."""
        if not self.enabled or role in self._super:
            return True
        if isinstance(of, Subscribed):
            return self._subscribes(role, right, of, host)
        granted = self._granted_by_pulsar(role, right, of)
        if not (self._acls or self._everyone):
            return granted
        if isinstance(of, Group) and not self._may_subscribe(role, of.home, of.name):
            return False
        if of is None or isinstance(of, Tenant):
            return self._broadly(role, right, of, host, granted=granted)
        return self._listed(role, right, of, host, granted=granted)

    # Both together.

    def _listed(self, role: str, right: Right, of: _Listed, host: str, *, granted: bool) -> bool:
        """Decide about one resource, which ACLs may name."""
        kind, names = self._names(of)
        verdicts = [
            self._acls.verdict(f"User:{role}", host, operation, kind, names)
            for operation in _OPERATIONS.get(right, ())
        ]
        if Verdict.DENIED in verdicts:
            return False
        if granted or not verdicts:
            return granted
        everyone = self._everyone and not self._has_grants(of)
        return all(each is Verdict.ALLOWED or (each is Verdict.NO_ACL and everyone) for each in verdicts)

    def _broadly(self, role: str, right: Right, of: Tenant | None, host: str, *, granted: bool) -> bool:
        """Decide about the cluster, and about rights to any resource."""
        principal = f"User:{role}"
        if isinstance(of, Tenant):
            if granted or right is not Right.enter:
                return granted
            beneath = "" if of.name == self._naming.tenant else f"{of.name}/"
            return self._acls.allows_any(principal, host, _ENTERING, ResourceType.TOPIC, beneath)
        operation = _ON_CLUSTER.get(right)
        if operation is not None:
            verdict = self._acls.verdict(principal, host, operation, ResourceType.CLUSTER, (CLUSTER_NAME,))
            if verdict is Verdict.DENIED and right is not Right.produce:  # topics may grant it, too
                return False
            if verdict is Verdict.ALLOWED or (verdict is Verdict.NO_ACL and self._everyone):
                return True
        if granted:
            return True
        if right in (Right.produce, Right.consume):
            wanted = _OPERATIONS[right]
            return self._acls.allows_any(principal, host, wanted, ResourceType.TOPIC) or self._everyone
        return False

    def _subscribes(self, role: str, right: Right, of: Subscribed, host: str) -> bool:
        """Decide about a topic through a subscription, which ACLs call a group."""
        topic = of.topic
        if not self.may(role, right, topic, host):
            return False
        if not (
            self._administers(role, topic.tenant)
            or self._is_subscriber(role, topic.namespace_name, of.subscription)
        ):
            return False
        if not (self._acls or self._everyone):
            return True
        granted = self._has_topic(role, right, topic)
        tenant = topic.tenant if self._by_tenant else None
        group = Group(of.subscription, topic.namespace_name, tenant)
        return self._listed(role, Right.use, group, host, granted=granted)

    def _names(self, of: _Listed) -> tuple[ResourceType, tuple[str, ...]]:
        """Return the names that ACLs may use for a resource."""
        if isinstance(of, TopicName):
            if not of.persistent:
                return ResourceType.TOPIC, (str(of),)
            short = self._naming.kafka_name(of)
            full = f"{of.tenant}/{of.namespace}/{of.local}"
            # Also as Pulsar writes it: an ACL of that spelling would be shown, and deny nothing.
            return ResourceType.TOPIC, ((short, str(of)) if short == full else (short, full, str(of)))
        if isinstance(of, Group):
            if of.tenant is None or of.tenant == self._naming.tenant:
                return ResourceType.GROUP, (of.name,)
            return ResourceType.GROUP, (f"{of.tenant}/{of.name}",)
        if isinstance(of, TokenOwner):
            return ResourceType.USER, (f"User:{of.role}",)
        kind = (
            ResourceType.TRANSACTIONAL_ID
            if isinstance(of, TransactionalId)
            else ResourceType.DELEGATION_TOKEN
        )
        return kind, (of.id,)

    def _has_grants(self, of: _Listed) -> bool:
        """True if any role was granted a topic by name or with its namespace: then it is not open to all."""
        if not isinstance(of, TopicName) or of.namespace_name not in self._namespaces:
            return False
        auth = self._namespaces.policies(of.namespace_name).auth
        return bool(auth.namespace or auth.topics.get(str(of)))

    # Pulsar's grants.

    def _granted_by_pulsar(self, role: str, right: Right, of: Resource) -> bool:
        if isinstance(of, TopicName):
            return self._has_topic(role, right, of)
        if isinstance(of, Group):
            if right is Right.alter_configs:  # also those of members, which are not asked
                return self._administers(role, of.home.partition("/")[0])
            return right in _OF_GROUPS and self._joins(role, of)
        if isinstance(of, TokenOwner | TokenId):
            return False
        if isinstance(of, TransactionalId):
            return right in _OF_TRANSACTIONS and self._may_have(role, of)
        if isinstance(of, Tenant):
            if right is Right.administer:
                return self._administers(role, of.name)
            return right in _ACTIONS and self._has_somewhere(role, _ACTIONS[right], of.name)
        return right in _ACTIONS and self._has_somewhere(role, _ACTIONS[right], None)

    def _may_subscribe(self, role: str, home: str, name: str) -> bool:
        return self._administers(role, home.partition("/")[0]) or self._is_subscriber(role, home, name)

    def _administers(self, role: str, tenant: str) -> bool:
        return role in self._namespaces.admin_roles(tenant)

    def _has_topic(self, role: str, right: Right, topic: TopicName) -> bool:
        if right is Right.operate:
            return False
        if self._administers(role, topic.tenant):
            return True
        return right in _OF_TOPICS and self._granted(role, topic.namespace_name, _ACTIONS[right], topic)

    def _joins(self, role: str, group: Group) -> bool:
        if not self._has_somewhere(role, _ACTIONS[Right.consume], group.tenant):
            return False
        return self._may_subscribe(role, group.home, group.name)

    def _may_have(self, role: str, of: TransactionalId) -> bool:
        """True if any producer may use an id: no ACL restricts it, and it belongs to no other known role."""
        if of.tenant is not None and self._administers(role, of.tenant):
            return True
        if self._acls.gives(*self._names(of)) or not self._has_somewhere(role, _ACTIONS[Right.produce], None):
            return False
        return of.role in ("", role) or not self._is_known(of.role)

    def _is_known(self, role: str) -> bool:
        """True if a role may do anything at all as a producer, by grants or ACLs."""
        by_grant = role in self._super or self._has_somewhere(role, _ACTIONS[Right.produce], None)
        return by_grant or self._acls.mentions(f"User:{role}")

    def _has_somewhere(self, role: str, actions: frozenset[AuthAction], tenant: str | None) -> bool:
        """True if a role was granted any of these on any topic, existing or not, of a tenant or of all."""
        if tenant is not None and self._administers(role, tenant):
            return True
        for namespace in self._namespaces.names():
            owner = namespace.partition("/")[0]
            if tenant is None:
                if self._administers(role, owner):
                    return True
            elif owner != tenant:
                continue
            grants = self._namespaces.policies(namespace).auth
            tables = (grants.namespace, *grants.topics.values())
            if any(self._matches(rows, role, actions) for rows in tables):
                return True
        return False

    def _granted(self, role: str, namespace: str, actions: frozenset[AuthAction], topic: TopicName) -> bool:
        try:
            grants = self._namespaces.policies(namespace).auth
        except NamespaceNotFound:
            return False
        if self._matches(grants.namespace, role, actions):
            return True
        rows = grants.topics.get(str(topic))
        return rows is not None and self._matches(rows, role, actions)

    def _is_subscriber(self, role: str, namespace: str, subscription: str) -> bool:
        try:
            roles = self._namespaces.policies(namespace).auth.subscriptions.get(subscription)
        except NamespaceNotFound:
            return True
        return not roles or role in roles

    def _matches(self, rows: Grants, role: str, actions: Iterable[AuthAction]) -> bool:
        if not rows:
            return False
        own = rows.get(role)
        if own is not None and not own.isdisjoint(actions):
            return True
        return self._wildcards and any(
            not granted.isdisjoint(actions) and _is_like(role, pattern) for pattern, granted in rows.items()
        )


class Access:
    """The remembered decisions for one role at one address."""

    __slots__ = ("__weakref__", "_authorization", "_remembered", "host", "role", "written")

    def __init__(self, authorization: Authorization, role: str, host: str = "") -> None:
        self._authorization = authorization
        self.role = role
        self.host = host
        self._remembered: dict[object, bool] = {}
        self.written: set[str | bytes] = set()
        """Names and ids of topics, as clients spell them, that it may write to: each small Produce looks only here."""

    def forget(self) -> None:
        """Forget all decisions."""
        self._remembered.clear()
        self.written.clear()

    def writes(self, spelled: str | bytes) -> None:
        """Remember that it may write to a topic by this name or id; the decision about it is remembered, too."""
        if len(self.written) >= _MAX_REMEMBERED:
            self.written.clear()
        self.written.add(spelled)

    def may(self, right: Right, of: Resource = None) -> bool:
        """True if it has a right."""
        key = (right, of)
        found = self._remembered.get(key)
        if found is None:
            found = self._keep(key, self._authorization.may(self.role, right, of, self.host))
        return found

    def produces(self, topic: TopicName) -> bool:
        """True if it may write to a topic."""
        return self.may(Right.produce, topic)

    def consumes(self, topic: TopicName, subscription: str | None = None) -> bool:
        """True if it may read a topic, with a subscription of this name."""
        return self.may(Right.consume, topic if subscription is None else Subscribed(topic, subscription))

    def looks_up(self, topic: TopicName) -> bool:
        """True if it may see a topic."""
        return self.may(Right.see, topic)

    def _keep(self, key: object, decision: bool) -> bool:
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        if not self._remembered:
            self._authorization.remembers(self)
        self._remembered[key] = decision
        return decision


class OtherBroker(Access):
    """Another broker of the cluster: it may do what only brokers request of each other."""

    ROLE: ClassVar[str] = "broker"

    __slots__ = ()

    def __init__(self, authorization: Authorization, host: str) -> None:
        super().__init__(authorization, self.ROLE, host)

    def may(self, right: Right, of: Resource = None) -> bool:
        return right is Right.act_for_cluster


class Proxied(Access):
    """A role behind a proxy: it may do what both may. The client's own address is not known."""

    __slots__ = ("_proxy",)

    def __init__(self, authorization: Authorization, role: str, proxy: Access) -> None:
        super().__init__(authorization, role)
        self._proxy = proxy

    def may(self, right: Right, of: Resource = None) -> bool:
        return self._proxy.may(right, of) and super().may(right, of)


def _is_like(role: str, pattern: str) -> bool:
    """True if a role matches one of Pulsar's wildcards: ``team.*`` and ``*.team``, and ``*`` for all."""
    if pattern.endswith("*") and role.startswith(pattern[:-1]):
        return True
    return pattern.startswith("*") and role.endswith(pattern[1:])
