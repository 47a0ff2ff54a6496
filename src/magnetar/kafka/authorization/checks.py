"""What the asker of a request may do, in Kafka's words, from what it was granted in Pulsar's.

    Kafka                                   Pulsar
    WRITE to a topic                        produce
    READ a topic                            consume (with the group as subscription, where there is one)
    DESCRIBE a topic, create it unasked     produce or consume
    CREATE, DELETE, ALTER a topic           to be among the tenant's admins
    READ, DESCRIBE, DELETE a group          consume anywhere, or in the tenant where clients have tenants for homes;
                                            and no subscription of that name is for others
    anything on the cluster                 to be a super user
    IDEMPOTENT_WRITE                        produce anywhere (KIP-679)

A topic whose name cannot be, or whose id nobody has, is nobody's: the handler says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from magnetar.broker.auth import Access, Group, Right, Subscribed
from magnetar.broker.errors import InvalidTopic
from magnetar.broker.names import TopicName
from magnetar.kafka.route import Handler
from magnetar.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext


class Checks:
    """Answers for one request."""

    __slots__ = ("_access", "_context")

    def __init__(self, access: Access, context: RequestContext) -> None:
        self._access = access
        self._context = context

    def named(self, name: str | None, topic_id: bytes = ZERO_UUID) -> TopicName | None:
        """Return the topic that is meant, there or not; None if that cannot be told."""
        broker = self._context.kafka.broker
        try:
            found = broker.get(name) if name else broker.get_by_id(topic_id)
            if found is not None:
                return found.name
            return broker.naming.parse(name) if name else None
        except InvalidTopic:
            return None

    def writes(self, name: str | None, topic_id: bytes = ZERO_UUID) -> bool:
        """WRITE on a topic."""
        topic = self.named(name, topic_id)
        return topic is None or self._access.may(Right.produce, topic)

    def reads(self, name: str | None, topic_id: bytes = ZERO_UUID, group: str | None = None) -> bool:
        """READ on a topic, by a group if one is given."""
        topic = self.named(name, topic_id)
        if topic is None:
            return True
        return self._access.may(Right.consume, topic if group is None else Subscribed(topic, group))

    def sees(self, name: str | None, topic_id: bytes = ZERO_UUID) -> bool:
        """DESCRIBE on a topic."""
        topic = self.named(name, topic_id)
        return topic is None or self._access.may(Right.see, topic)

    def manages(self, name: str | None, topic_id: bytes = ZERO_UUID) -> bool:
        """CREATE, DELETE, ALTER and ALTER_CONFIGS on a topic."""
        topic = self.named(name, topic_id)
        return topic is None or self._access.may(Right.administer, topic)

    def uses(self, group: str) -> bool:
        """READ, DESCRIBE and DELETE on a group."""
        kafka = self._context.kafka
        naming = kafka.broker.naming
        home = kafka.home or f"{naming.tenant}/{naming.namespace}"
        tenant = home.partition("/")[0] if kafka.by_tenant else None
        return self._access.may(Right.use, Group(group, home, tenant))

    def produces_somewhere(self) -> bool:
        """IDEMPOTENT_WRITE on the cluster, and WRITE on a transactional id."""
        return self._access.may(Right.produce)

    def operates(self) -> bool:
        """Everything on the cluster."""
        return self._access.may(Right.operate)


GuardFunction = Callable[[Any, Any, Checks, Handler], Coroutine[Any, Any, Any]]
"""``await guard(request, context, checks, handler)`` is the response."""
