"""All share partitions of a broker that somebody works on, and the sessions of those who do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.base.once import Once
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.kafka.coordinators.groups import steady_clock_ms
from magnetar.kafka.coordinators.share.settings import ShareSettings
from magnetar.kafka.offsets_log import LedgerOffsetsLog
from magnetar.kafka.other_brokers import OtherBrokers
from magnetar.kafka.partitions.partition import Partition
from magnetar.kafka.partitions.registry import Partitions
from magnetar.kafka.shares.dead_letter_topics import DeadLetterTopics
from magnetar.kafka.shares.serving import ServedShare
from magnetar.kafka.shares.sessions import SharedPartition, ShareSession, ShareSessions
from magnetar.kafka.shares.state import ShareKey
from magnetar.kafka.shares.state_coordinator import ShareCoordinator
from magnetar.kafka.shares.states_anywhere import ON_ITS_WAY, StatesAnywhere
from magnetar.node.broker import Broker
from magnetar.topics.names import SHARE_GROUP_STATE
from magnetar.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    from magnetar.topics.topic import Topic

SettingsOf = Callable[[str], ShareSettings]


class Shares:
    """Share groups at work. Made when the first client asks: most brokers never have any."""

    def __init__(
        self,
        broker: Broker,
        partitions: Partitions,
        settings_of: SettingsOf,
        named_by: Callable[[str], str],
        others: OtherBrokers,
        topic: str = SHARE_GROUP_STATE,
        home: str = "",
        clock: Callable[[], int] = steady_clock_ms,
    ) -> None:
        """``settings_of`` gives the settings in force for a group, ``named_by`` the role that named its dead letters'
        queue; ``topic`` is the one that states are kept in.

        Other brokers are asked about a tenant's groups as one who is at ``home`` there.
        """
        self.broker = broker
        self.settings_of = settings_of
        self.states = ShareCoordinator(LedgerOffsetsLog(broker, partitions, topic), broker.background, clock)
        """Those that this broker keeps, of whoever's partitions."""
        self.anywhere = StatesAnywhere(self.states, others, broker.cluster.ownership, broker.background, home)
        """Those of all brokers."""
        self.others = others
        self.sessions = ShareSessions(
            lambda: broker.settings.of(ShareSettings).group_share_max_share_sessions,
            broker.serving.memory.account(lambda: None, known=True),
            self._session_ended,
        )
        self.topic = topic
        self.dead_letters = DeadLetterTopics(broker, partitions, others, named_by, home)
        self._partitions = partitions
        self._clock = clock
        self._served: dict[ShareKey, ServedShare] = {}
        self._loading: Once[ShareKey, ServedShare] = Once()

    async def start(self) -> None:
        """Begin to load what is kept, in the background."""
        await self.states.follow_ownership()

    async def close(self) -> None:
        """Keep what was decided."""
        for served in list(self._served.values()):
            served.end_here()
        await self.states.close()

    # Finding.

    def served(self, key: ShareKey) -> ServedShare | None:
        """Return a share partition that somebody works on."""
        return self._served.get(key)

    async def get(self, group_id: str, topic: Topic, partition: Partition) -> ServedShare:
        """Return a share partition, loaded if need be. Raises `CoordinatorRefused`, ``LedgerError``."""
        key = ShareKey(group_id, topic.topic_id, partition.index)
        found = self._served.get(key)
        if found is not None:
            if found.leader_epoch == partition.leader_epoch:
                found.partition = partition
                return found
            found.end_here()
        return await self._loading.do(key, lambda: self._load(key, partition))

    async def _load(self, key: ShareKey, partition: Partition) -> ServedShare:
        served = ServedShare(
            key,
            partition,
            self.anywhere,
            lambda: self.settings_of(key.group_id),
            self._clock,
            self._gone,
            self.dead_letters,
            self.broker.coordination.linked_queues if self.topic == SHARE_GROUP_STATE else None,
        )
        try:
            await served.load()
        except CoordinatorRefused as refused:
            if refused.code in ON_ITS_WAY:
                # Kafka's clients in Java end when they hear of a coordinator in answer to ShareFetch.
                raise CoordinatorRefused(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(refused)) from refused
            raise
        self._served[key] = served
        return served

    def _gone(self, served: ServedShare) -> None:
        if self._served.get(served.key) is served:
            del self._served[served.key]

    # Sessions.

    def _session_ended(self, session: ShareSession) -> None:
        group_id, member_id = session.key
        for each in session.partitions:
            self._left(group_id, member_id, each)

    def _left(self, group_id: str, member_id: str, each: SharedPartition) -> None:
        """Take back what a member holds of a partition, and forget the books that nobody needs."""
        served = self._served.get(ShareKey(group_id, *each))
        if served is None:
            return
        served.release(member_id)
        served.leave_unless_needed()

    async def begin_at(self, key: ShareKey, start_offset: int) -> None:
        """Begin a state anew, in an epoch in which nobody who knows of the old one may write.

        Raises `CoordinatorRefused`.
        """
        state = await self.anywhere.read(key)
        await self.anywhere.initialize(key, state.state_epoch + 1, start_offset)
        self.forget(key)

    def forget(self, key: ShareKey) -> None:
        """Begin anew with a share partition: somebody has set what is kept of it."""
        served = self._served.get(key)
        if served is not None:
            served.end_here()

    async def delete_group(self, group_id: str) -> None:
        """Forget all that is kept of a group. Raises `CoordinatorRefused`."""
        for key in await self.anywhere.of_group(group_id):
            await self.anywhere.delete(key)
            self.forget(key)
        self.dead_letters.counts.pop(group_id, None)

    async def forget_topic(self, topic: Topic) -> None:
        """A topic is gone: so is what groups have of it."""
        for key, served in list(self._served.items()):
            if key.topic_id == topic.topic_id:
                served.end_here()
        self.states.forget_topic(topic.topic_id)
