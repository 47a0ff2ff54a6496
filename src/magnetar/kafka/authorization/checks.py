"""What the asker of a request may do, in Kafka's words: by Kafka's ACLs, or by what it was granted in Pulsar's.

    Kafka                                   Pulsar
    WRITE to a topic                        produce
    READ a topic                            consume (with the group as subscription, where there is one)
    DESCRIBE a topic, create it unasked     produce or consume
    CREATE, DELETE, ALTER a topic           to be among the tenant's admins
    ALTER_CONFIGS of a group                to be an admin of its home's tenant
    READ, DESCRIBE, DELETE a group          consume anywhere, or in the tenant where clients have tenants for homes;
                                            and no subscription of that name is for others
    anything on the cluster                 to be a super user
    IDEMPOTENT_WRITE                        produce anywhere (KIP-679)

A topic whose name cannot be, or whose id nobody has, is nobody's: the handler says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from magnetar.auth import Access, Group, Right, Subscribed, TransactionalId
from magnetar.base.errors import InvalidTopic
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.route import Handler
from magnetar.topics.names import TopicName
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.primitives import ZERO_UUID

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

FEW_TOPICS = 16
"""Of one Produce; for more nothing is remembered."""

_SENTENCES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}


def sentence(code: ErrorCode) -> str:
    """Return what Kafka says beside a code of what is not permitted."""
    return _SENTENCES[code]


def may_write_all(request: Any, access: Access) -> bool:
    """Whether each topic of a small Produce is known to be one that may be written to; if not, its guard finds out.

    It also looks after transactions.
    """
    topics, written = request.topic_data, access.written
    if len(topics) > FEW_TOPICS or not written or request.transactional_id is not None:
        return False
    return written.issuperset([topic.name or topic.topic_id for topic in topics])


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

    def takes_dead_letters(self, name: str | None, topic_id: bytes = ZERO_UUID) -> bool:
        """Whether a topic is there to be a dead-letter queue; nothing of whoever asks."""
        broker = self._context.kafka.broker
        found = broker.get(name) if name else broker.get_by_id(topic_id)
        return found is not None and found.config.errors_deadletterqueue_group_enable

    def remember_written(self, topics: Iterable[Any]) -> None:
        """Spare the next small Produce of these topics, which may be written to, the same way."""
        for topic in topics:
            # A topic that is not there may come to be one that this name never meant.
            if self._context.kafka.broker.get(topic.name) if topic.name else self.named(None, topic.topic_id):
                self._access.writes(topic.name or topic.topic_id)

    def reads(self, name: str | None, topic_id: bytes = ZERO_UUID, group: str | None = None) -> bool:
        """READ on a topic, by a group if one is given."""
        topic = self.named(name, topic_id)
        if topic is None:
            return True
        return self._access.may(Right.consume, topic if group is None else Subscribed(topic, group))

    def reads_in(self, group: str, name: str | None, topic_id: bytes = ZERO_UUID) -> bool:
        """READ on a topic, by a group."""
        return self.reads(name, topic_id, group)

    def sees(self, name: str | None, topic_id: bytes = ZERO_UUID) -> bool:
        """DESCRIBE on a topic."""
        topic = self.named(name, topic_id)
        return topic is None or self._access.may(Right.see, topic)

    def creates(self, name: str | None) -> bool:
        """CREATE on the cluster, or on a topic."""
        return self._on_topic(Right.create, name) or self._access.may(Right.create_on_cluster)

    def creates_unasked(self, name: str | None) -> bool:
        """The same, or any grant of Pulsar's on the topic."""
        return self._on_topic(Right.create_unasked, name) or self._access.may(Right.create_on_cluster)

    def deletes(self, name: str | None, topic_id: bytes = ZERO_UUID) -> bool:
        """DELETE on a topic."""
        return self._on_topic(Right.delete, name, topic_id)

    def alters(self, name: str | None) -> bool:
        """ALTER on a topic."""
        return self._on_topic(Right.alter, name)

    def sees_configs(self, name: str | None) -> bool:
        """DESCRIBE_CONFIGS on a topic."""
        return self._on_topic(Right.see_configs, name)

    def alters_configs(self, name: str | None) -> bool:
        """ALTER_CONFIGS on a topic."""
        return self._on_topic(Right.alter_configs, name)

    def _on_topic(self, right: Right, name: str | None, topic_id: bytes = ZERO_UUID) -> bool:
        topic = self.named(name, topic_id)
        return topic is None or self._access.may(right, topic)

    def uses(self, group: str) -> bool:
        """READ on a group."""
        return self._access.may(Right.use, self._group(group))

    def sees_group(self, group: str) -> bool:
        """DESCRIBE on a group."""
        return self._access.may(Right.see, self._group(group))

    def deletes_group(self, group: str) -> bool:
        """DELETE on a group."""
        return self._access.may(Right.delete, self._group(group))

    def sees_group_configs(self, group: str) -> bool:
        """DESCRIBE_CONFIGS on a group."""
        return self._access.may(Right.see_configs, self._group(group))

    def alters_group_configs(self, group: str) -> bool:
        """ALTER_CONFIGS on a group."""
        return self._access.may(Right.alter_configs, self._group(group))

    def _group(self, group: str) -> Group:
        home, tenant = self._home
        return Group(group, home, tenant)

    @property
    def _home(self) -> tuple[str, str | None]:
        """The namespace that the client is at home in, and its tenant where each has groups and ids of its own."""
        kafka = self._context.kafka
        naming = kafka.broker.naming
        home = kafka.home or f"{naming.tenant}/{naming.namespace}"
        return home, home.partition("/")[0] if kafka.by_tenant else None

    def transacts(self, transactional_id: str, role: str = "") -> bool:
        """WRITE on a transactional id, which is of ``role`` as far as that is known."""
        return self._access.may(Right.transact, TransactionalId(transactional_id, role, self._home[1]))

    def transacts_here(self, transactional_id: str) -> bool:
        """WRITE on a transactional id, whose role is looked at if its coordinator is here."""
        made = self._context.kafka.transactions.made
        return self.transacts(transactional_id, "" if made is None else made.role_of(transactional_id))

    def finds_transaction(self, transactional_id: str) -> bool:
        """DESCRIBE on a transactional id, of which more than where it is nobody is told."""
        return self._access.may(Right.find_transaction, TransactionalId(transactional_id, "", self._home[1]))

    def sees_transaction(self, transactional_id: str) -> bool:
        """DESCRIBE on a transactional id, by an ACL."""
        return self._access.may(Right.see, TransactionalId(transactional_id))

    async def writes_as(self, transactional_id: str) -> bool:
        """WRITE on a transactional id, and on all topics of the transaction that it has open."""
        if not self.transacts(transactional_id):
            return False
        kafka = self._context.kafka
        transactions = await kafka.transactions.get()
        if not self.transacts(transactional_id, transactions.role_of(transactional_id)):
            return False
        try:
            found = transactions.describe(transactional_id)
        except CoordinatorRefused:
            return True
        return all(map(self.writes, {each.topic for each in found.partitions} - {kafka.groups.topic}))

    async def sees_transactions_of(self, transactional_id: str) -> bool:
        """DESCRIBE on a transactional id, and what it has open."""
        return (
            self.operates()
            or self.sees_transaction(transactional_id)
            or (
                self.finds_transaction(transactional_id)  # no ACL forbids it
                and await self.writes_as(transactional_id)
            )
        )

    def produces_somewhere(self) -> bool:
        """IDEMPOTENT_WRITE on the cluster, or WRITE on any topic."""
        return self._access.may(Right.produce)

    def on_cluster(self, right: Right) -> bool:
        """One of the rights to the cluster."""
        return self._access.may(right)

    def operates(self) -> bool:
        """Everything on the cluster."""
        return self._access.may(Right.operate)


GuardFunction = Callable[[Any, Any, Checks, Handler], Coroutine[Any, Any, Any]]
"""``await guard(request, context, checks, handler)`` is the response."""
