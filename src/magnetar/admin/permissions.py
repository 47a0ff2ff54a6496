"""What roles were granted, and granting and revoking it, in the running broker."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.admin.errors import AdminError, Invalid, NotThere
from magnetar.auth.acls import Acl
from magnetar.auth.permissions import Permissions
from magnetar.base.errors import BrokerError, InvalidPolicy, InvalidTopic, NamespaceNotFound
from magnetar.node.broker import Broker
from magnetar.topics.grants import Grants
from magnetar.topics.names import TopicName

Rows = dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class GrantsOf:
    """What roles may do with a namespace, or with one topic (there with what they may do in its namespace)."""

    target: str
    roles: Rows
    topics: dict[str, Rows] = field(default_factory=dict)
    """Of a namespace: the topics that have grants of their own."""
    subscriptions: Rows = field(default_factory=dict)
    """Of a namespace: subscriptions that are only for some roles."""
    admins: tuple[str, ...] = ()
    """The roles that may do everything in the tenant."""
    others: tuple[str, ...] = ()
    """Of a namespace: Kafka's ACLs, of all resources, that Pulsar has no words for."""
    in_force: bool = True
    """Whether the broker asks for grants at all (authorization.enabled)."""


class LivePermissions:
    """Answers questions about grants, and carries out orders."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._permissions: Permissions = broker.security.permissions

    def show(self, target: str) -> GrantsOf:
        """Return the grants of ``tenant/namespace`` or of a topic."""
        namespace, topic = self._target(target)
        try:
            policies = self._permissions.of_namespace(namespace)
        except NamespaceNotFound as error:
            raise NotThere(str(error)) from None
        admins = tuple(sorted(self._broker.namespaces.admin_roles(namespace.partition("/")[0])))
        enabled = self._broker.security.authorization.enabled
        if topic is not None:
            return GrantsOf(
                str(topic), _rows(self._permissions.of_topic(topic)), admins=admins, in_force=enabled
            )
        return GrantsOf(
            namespace,
            _rows(policies.namespace),
            {name: _rows(grants) for name, grants in sorted(policies.topics.items())},
            {name: tuple(sorted(roles)) for name, roles in sorted(policies.subscriptions.items())},
            admins,
            tuple(sorted(map(_told_acl, self._broker.security.policies.others()))),
            enabled,
        )

    async def grant(self, target: str, role: str, actions: list[str]) -> GrantsOf:
        """Grant a role exactly these actions."""
        namespace, topic = self._target(target)
        with _told():
            await self._permissions.grant(namespace, role, actions, topic)
        return self.show(target)

    async def revoke(self, target: str, role: str) -> GrantsOf:
        """Take from a role all that it was granted on exactly this target."""
        namespace, topic = self._target(target)
        with _told():
            if not await self._permissions.revoke(namespace, role, topic):
                raise NotThere(f"{role} has no grant on {target} itself", "See 'magnetar permission list'.")
        return self.show(target)

    async def restrict(self, namespace: str, subscription: str, roles: list[str]) -> GrantsOf:
        """Have a subscription be for these roles alone; for all who may consume if there are none."""
        with _told():
            await self._permissions.set_subscription(self._namespace(namespace), subscription, roles)
        return self.show(namespace)

    async def set_admins(self, tenant: str, roles: list[str]) -> tuple[str, ...]:
        """Make these roles the admins of a tenant."""
        if tenant not in self._broker.namespaces.tenants():
            known = ", ".join(sorted(self._broker.namespaces.tenants()))
            raise NotThere(f"there is no tenant {tenant}", f"There are {known}; Pulsar's admin makes more.")
        await self._permissions.set_tenant_admins(tenant, roles)
        return tuple(sorted(self._broker.namespaces.admin_roles(tenant)))

    def _target(self, target: str) -> tuple[str, TopicName | None]:
        if "://" not in target and target.count("/") == 1:
            return self._namespace(target), None
        try:
            topic = self._broker.naming.parse(target)
        except InvalidTopic as error:
            raise Invalid(
                f"{target!r} is neither a namespace nor a topic: {error}",
                "Write tenant/namespace, a topic's name, or persistent://tenant/namespace/topic.",
            ) from None
        return topic.namespace_name, topic

    def _namespace(self, name: str) -> str:
        if name not in self._broker.namespaces:
            raise NotThere(
                f"namespace {name} does not exist", "It is made with its first topic, or by Pulsar's admin."
            )
        return name


def _told_acl(acl: Acl) -> str:
    return (
        f"{acl.permission.name} {acl.principal} {acl.operation.name} on {acl.pattern_type.name} "
        f"{acl.resource_type.name} {acl.resource_name} from {acl.host}"
    )


class _told:
    """Raise the broker's refusals in an operator's words."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InvalidPolicy):
            raise Invalid(str(error)) from None
        if isinstance(error, BrokerError):
            raise AdminError(str(error)) from None


def _rows(grants: Grants) -> Rows:
    return {role: tuple(sorted(actions)) for role, actions in sorted(grants.items())}
