"""What only the running broker knows, gathered from its services on its event loop."""

from __future__ import annotations

import asyncio
import base64
import os
import pickle
from collections.abc import Callable, Iterable
from pathlib import Path

from magnetar.admin import compaction
from magnetar.admin.adopting import adopt_all, reserve_for
from magnetar.admin.broker_state import BrokerState, Inventory
from magnetar.admin.compaction import TopicCompaction
from magnetar.admin.errors import AdminError, Declined, NotThere
from magnetar.admin.explain import Explained, FilePlace, explain
from magnetar.admin.frames import place_of
from magnetar.admin.health import Health, health_of
from magnetar.admin.ledgers_of import PartitionLedgers, shown
from magnetar.admin.manifest import Adopted, Reserved, read_manifest
from magnetar.admin.partition_name import PartitionName
from magnetar.admin.permissions import GrantsOf, LivePermissions
from magnetar.admin.reasons import Why
from magnetar.admin.shown_settings import secrets_of
from magnetar.admin.telling import inventory_of, knows_client, stacks, state_of
from magnetar.admin.topic_schema import TopicSchemaVersion
from magnetar.admin.users import LiveUsers, User
from magnetar.admin.why_group import GroupFacts, Key, why_group
from magnetar.admin.why_partition import (
    FailedRead,
    LastRefusal,
    OpenTransaction,
    PartitionFacts,
    why_partition,
)
from magnetar.auth.redaction import secrets_among, spellings, without
from magnetar.base.errors import BrokerError, TopicNotFound
from magnetar.base.logs import recent_lines
from magnetar.cluster.ownership import NotOwned
from magnetar.cluster.peers import PeerFailed
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.figures.exposition import exposed
from magnetar.kafka.coordinators.facts import Committed
from magnetar.kafka.coordinators.views import GroupView, MemberView
from magnetar.kafka.partitions.partition import Partition
from magnetar.kafka.services import KafkaServices
from magnetar.ledger.errors import LedgerClosed, LedgerError, LedgerFenced
from magnetar.ledger.port import Position, StoredEntry, wall_clock_ms
from magnetar.node.broker import Broker
from magnetar.node.process_figures import ProcessFigures
from magnetar.records.entry import index_of
from magnetar.records.errors import RecordsError
from magnetar.schema_registry.topic_schemas import read_schemas
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.malformed import WireError
from magnetar.wire.kafka.messages.consumer_protocol_assignment import ConsumerProtocolAssignment

_MOST_METRICS = 8 << 20


class LiveBroker:
    """Answers an operator's questions from the services of the broker in this process."""

    def __init__(self, broker: Broker, clock: Callable[[], int] = wall_clock_ms) -> None:
        self._broker = broker
        self._clock = clock

    @property
    def _services(self) -> KafkaServices:
        """Kafka's handler, that knows partitions and groups; raise `Declined` where it is not started."""
        found = self._broker.offers.find(KafkaServices)
        if found is None:
            raise Declined(
                "this broker does not speak Kafka's protocol, and knows no groups and offsets",
                "Add kafka to messaging.protocols.",
            )
        return found

    async def health(self) -> Health:
        """Return whether the broker serves, and what is not as it should be."""
        return await health_of(self._broker)

    async def state(self) -> BrokerState:
        """Return what the broker says of itself: its process, listeners, clients and settings."""
        return await state_of(self._broker)

    async def knows_client(self, software: str) -> bool:
        """Return whether a Kafka client is connected that says it is of this version."""
        return await knows_client(self._broker, software)

    async def inventory(self) -> Inventory:
        """Return topics and groups."""
        return await inventory_of(self._broker)

    async def metrics(self) -> str:
        """Return what ``/metrics`` has, as far as it is not too much."""
        found = bytearray()
        async for part in exposed(self._broker.figures, None, ProcessFigures(self._broker)):
            found += part
            if len(found) > _MOST_METRICS:
                break
        return found.decode()

    async def stacks(self) -> str:
        """Return where threads and tasks are."""
        return stacks(asyncio.all_tasks())

    async def recent_log(self) -> tuple[str, ...]:
        """Return the newest log lines."""
        return tuple(recent_lines)

    async def redact(self, texts: list[str]) -> tuple[str, ...]:
        """Return lines without the secrets of this process, which only it knows."""
        settings = self._broker.settings
        values = [*secrets_of(settings), *secrets_among(os.environ, settings.declared)]
        secrets = spellings(values)
        return tuple(without(each, secrets) for each in texts)

    # Grants.

    async def permissions(self, target: str) -> GrantsOf:
        """Return the grants of a namespace or a topic."""
        return LivePermissions(self._broker).show(target)

    async def grant(self, target: str, role: str, actions: list[str]) -> GrantsOf:
        """Grant a role exactly these actions."""
        return await LivePermissions(self._broker).grant(target, role, actions)

    async def revoke(self, target: str, role: str) -> GrantsOf:
        """Take from a role all that it was granted on a target."""
        return await LivePermissions(self._broker).revoke(target, role)

    async def restrict(self, namespace: str, subscription: str, roles: list[str]) -> GrantsOf:
        """Have a subscription be for these roles alone."""
        return await LivePermissions(self._broker).restrict(namespace, subscription, roles)

    async def set_admins(self, tenant: str, roles: list[str]) -> tuple[str, ...]:
        """Make these roles the admins of a tenant."""
        return await LivePermissions(self._broker).set_admins(tenant, roles)

    # Users.

    def _users(self) -> LiveUsers:
        return LiveUsers(self._broker.security.scram, self._broker.settings)

    async def users(self) -> tuple[User, ...]:
        """Return who may log in by SCRAM."""
        return self._users().all()

    async def set_user(
        self, user: str, password: str, mechanisms: list[str], iterations: int
    ) -> tuple[User, ...]:
        """Return a user a password."""
        return await self._users().set(user, password, mechanisms, iterations)

    async def delete_user(self, user: str) -> tuple[User, ...]:
        """Forget a user's passwords."""
        return await self._users().delete(user)

    # Partitions and groups.

    async def explain(self, topic: str, partition: int, offset: int) -> Explained:
        """Return what is known of one record; raise `NotThere`, or `AdminError` where storage is damaged."""
        place = PartitionName(topic, partition)
        found = await self._partition(place)
        log = found.log
        if not log.log_start_offset <= offset < log.high_watermark:
            raise NotThere(
                f"{place} has no offset {offset}: it holds {log.log_start_offset} to {log.high_watermark - 1}"
                if log.high_watermark > log.log_start_offset
                else f"{place} holds no records",
                f"'magnetar consume {topic} -p {partition} -o beginning -e' shows what is there.",
            )
        try:
            entries = await log.read(offset, max_bytes=1)
            if not entries:
                raise NotThere(f"{place}@{offset} was compacted away, and nothing came after it", "")
            stored = entries[0]
            file = None if stored.copy >= 0 else await self._file(stored)
            return explain(place, offset, stored, file, self._committed(place))
        except (LedgerError, RecordsError) as error:
            raise AdminError(
                f"{place}@{offset} cannot be read: {error}", "Run 'magnetar ledger verify'."
            ) from error

    async def ledgers(self, topic: str, partition: int) -> PartitionLedgers:
        """Return the ledgers of a partition, oldest first."""
        place = PartitionName(topic, partition)
        log = (await self._partition(place)).log
        return PartitionLedgers(
            topic=topic,
            partition=partition,
            first_offset=log.log_start_offset,
            next_offset=log.log_end_offset,
            flush=str(log.policy.flush),
            ledgers=tuple(map(shown, log.ledgers())),
        )

    async def schemas(self, topic: str) -> tuple[TopicSchemaVersion, ...]:
        """Return the versions of a topic's schema, as Pulsar producers set them; none where it has none."""
        try:
            found = await read_schemas(self._broker.store, self._broker.topic(topic))
        except BrokerError as error:
            raise NotThere(str(error), "See 'magnetar topic list'.") from error
        return tuple(
            TopicSchemaVersion(
                version, each.kind, base64.b64encode(each.definition).decode(), dict(each.properties)
            )
            for version, each in found.items()
        )

    async def why_partition(self, topic: str, partition: int) -> Why:
        """Return the one reason that nothing new comes out of a partition."""
        return why_partition(await self._facts(topic, partition))

    async def why_group(self, group: str) -> Why:
        """Return the one reason that a group does not move."""
        return why_group(await self.group_facts(group))

    async def reserve_ledgers(self, manifest: str) -> Reserved:
        """Return ids for the ledgers of a topic to be restored; raise `Declined`."""
        return await reserve_for(self._broker, read_manifest(Path(manifest)))

    async def adopt_ledgers(self, manifest: str) -> Adopted:
        """Make a topic of ledgers that were written under reserved ids; raise `Declined`."""
        return await adopt_all(self._broker, read_manifest(Path(manifest)))

    # Compaction.

    async def compact(self, topic: str, partitions: list[int]) -> TopicCompaction:
        """Begin to compact these partitions, all if none is named; raise `NotThere` or `Declined`."""
        found = await self._partitions(topic, partitions)
        compaction.begin(self._broker, found[0].topic, [each.log for each in found])
        return await self.compaction(topic, partitions)

    async def compaction(self, topic: str, partitions: list[int]) -> TopicCompaction:
        """Tell how the last compactions of these partitions went, of all if none is named."""
        found = await self._partitions(topic, partitions)
        return compaction.status(
            self._broker,
            found[0].topic,
            [each.index for each in found],
            [each.log for each in found],
        )

    # Partitions.

    async def _partitions(self, topic: str, partitions: list[int]) -> list[Partition]:
        try:
            wanted = list(range(self._broker.topic(topic).partitions))
        except BrokerError as error:
            raise NotThere(str(error), "See 'magnetar topic list'.") from error
        if partitions:
            wanted = sorted(set(partitions))
        return [await self._partition(PartitionName(topic, index)) for index in wanted]

    async def _partition(self, place: PartitionName) -> Partition:
        try:
            topic = self._broker.topic(place.topic)
            return await self._services.partitions.get(topic, place.partition)
        except TopicNotFound as error:
            raise NotThere(str(error), "See 'magnetar topic list'.") from error
        except BrokerError as error:
            raise NotThere(str(error)) from error
        except LedgerError as error:
            raise AdminError(f"{place} cannot be opened: {error}", "Run 'magnetar ledger verify'.") from error

    async def _facts(self, topic: str, index: int) -> PartitionFacts:
        now_ms = self._clock()
        try:
            found = self._broker.get(topic)
        except BrokerError:
            found = None
        if found is None or index >= found.partitions:
            return PartitionFacts(topic, index, now_ms, found.partitions if found else None)
        try:
            partition = await self._services.partitions.get(found, index)
            return await self._open_facts(partition, now_ms)
        except NotOwned as error:
            return await self._facts_elsewhere(error, topic, index)
        except (LedgerFenced, LedgerClosed) as error:
            told = LastRefusal(now_ms, type(error).__name__, str(error))
            return PartitionFacts(topic, index, now_ms, found.partitions, refusal=told)
        except (LedgerError, RecordsError) as error:
            return PartitionFacts(topic, index, now_ms, found.partitions, problem=str(error))

    async def _facts_elsewhere(self, error: NotOwned, topic: str, index: int) -> PartitionFacts:
        """Return what the worker knows that has a partition."""
        peers, owner = self._broker.cluster.peers, error.owner
        if peers is None or owner is None:
            told = "no broker, for the moment," if owner is None else f"broker {owner.node_id}"
            return PartitionFacts(topic, index, self._clock(), index + 1, elsewhere=told)
        if owner.node_id == peers.node_id:
            return PartitionFacts(topic, index, self._clock(), index + 1, problem=str(error))
        try:
            asked = pickle.dumps((topic, index))
            found = pickle.loads(await peers.ask(owner.node_id, "partition-facts", asked))
        except PeerFailed as failed:
            return PartitionFacts(topic, index, self._clock(), index + 1, problem=str(failed))
        assert isinstance(found, PartitionFacts)
        return found

    async def facts_for_others(self, asked: bytes) -> bytes:
        """Return what another worker asks about a partition of this one."""
        return pickle.dumps(await self._facts(*pickle.loads(asked)))

    async def _open_facts(self, partition: Partition, now_ms: int) -> PartitionFacts:
        log, refusal, unread = partition.log, partition.refusal, partition.unread
        last, unflushed = await self._append_times(partition)
        return PartitionFacts(
            topic=partition.topic.kafka_name,
            partition=partition.index,
            now_ms=now_ms,
            topic_partitions=partition.topic.partitions,
            first_offset=log.log_start_offset,
            next_offset=log.log_end_offset,
            visible_offset=log.high_watermark,
            last_append_ms=last,
            unflushed_since_ms=unflushed,
            parked=partition.waiting,
            flush=str(log.policy.flush),
            refusal=refusal and LastRefusal(refusal.at_ms, type(refusal.error).__name__, str(refusal.error)),
            unread=unread and FailedRead(unread.at_ms, unread.offset, unread.message, unread.in_tier),
            free_bytes=self._free_bytes(),
            open_transaction=self._open_transaction(partition),
        )

    def _open_transaction(self, partition: Partition) -> OpenTransaction | None:
        """Return the oldest transaction that is open in a partition, and whose it is."""
        for producer_id, first_offset in partition.producers.transactions.open().items():
            made = self._services.transactions.made
            try:
                known = [] if made is None else made.list()
            except CoordinatorRefused:
                known = []
            where = (partition.topic.kafka_name, partition.index)
            for each in known:
                if each.producer_id == producer_id and where in each.partitions:
                    return OpenTransaction(producer_id, first_offset, each.transactional_id, each.start_ms)
            return OpenTransaction(producer_id, first_offset)
        return None

    async def _append_times(self, partition: Partition) -> tuple[int | None, int | None]:
        """Return when the last readable entry was appended, and the first one that is not durable yet."""
        log = partition.log
        last = None
        if log.high_watermark > log.log_start_offset:
            entries = await log.read(log.high_watermark - 1, max_bytes=1)
            last = index_of(entries[0].data).broker_timestamp if entries else None  # it was compacted away
        if log.log_end_offset == log.high_watermark:
            return last, None
        return last, await self._first_unflushed(partition)

    async def _first_unflushed(self, partition: Partition) -> int | None:
        log = partition.log
        for ledger in reversed(log.ledgers()):
            if ledger.first_offset > log.high_watermark:
                continue
            low, high = 0, ledger.entries - 1
            while low < high:
                middle = (low + high) // 2
                entry = await log.entry(Position(ledger.ledger_id, middle))
                low, high = (low, middle) if entry.last_offset >= log.high_watermark else (middle + 1, high)
            if ledger.entries:
                entry = await log.entry(Position(ledger.ledger_id, low))
                return index_of(entry.data).broker_timestamp
        return None

    def _free_bytes(self) -> int | None:
        try:
            room = os.statvfs(self._broker.settings.node.data_dir)
        except OSError:
            return None  # it may be gone, or was never on a disk
        return room.f_bavail * room.f_frsize

    async def _file(self, stored: StoredEntry) -> FilePlace | None:
        root = Path(self._broker.settings.node.data_dir).absolute()
        return await asyncio.to_thread(place_of, root, stored.ledger_id, stored.entry_id)

    # Groups.

    def _committed(self, place: PartitionName) -> dict[str, Committed]:
        """Return what every group committed for a partition; while groups are loading, nothing."""
        groups = self._services.groups
        try:
            names = [each.group_id for each in groups.list_groups()]
            everything = {name: groups.committed(name) for name in names}
        except CoordinatorRefused:
            return {}
        return {
            name: offsets[place.topic][place.partition]
            for name, offsets in everything.items()
            if place.partition in offsets.get(place.topic, {})
        }

    async def group_facts(self, group: str) -> GroupFacts:
        """Return a group with its members, and with all partitions that it committed or was assigned."""
        now_ms, groups = self._clock(), self._services.groups
        index = groups.partition_of(group)
        try:
            view = groups.describe(group)
            offsets = groups.committed(group)
        except CoordinatorRefused as refused:
            loading = refused.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return GroupFacts(group, now_ms, loading=loading, offsets_partition=index)
        committed = {(topic, each): at for topic, row in offsets.items() for each, at in row.items()}
        assigned = {member.member_id: assignment(view, member) for member in view.members}
        keys = committed.keys() | {key for keys in assigned.values() for key in keys}
        return GroupFacts(
            group=group,
            now_ms=now_ms,
            offsets_partition=index,
            view=view,
            assigned=assigned,
            committed=committed,
            partitions=await self._facts_of(keys),
        )

    async def _facts_of(self, keys: Iterable[Key]) -> dict[Key, PartitionFacts]:
        return {key: await self._facts(*key) for key in keys}


def assignment(view: GroupView, member: MemberView) -> tuple[Key, ...]:
    """Return the partitions that a consumer was assigned; nothing for members that are no consumers."""
    if view.protocol_type != "consumer" or len(member.assignment) < 2:
        return ()
    version = int.from_bytes(member.assignment[:2], "big")
    try:
        said = ConsumerProtocolAssignment.decode(
            member.assignment[2:], min(version, ConsumerProtocolAssignment.MAX_VERSION)
        )
    except WireError:
        return ()  # what members tell each other is their own business
    return tuple((each.topic, index) for each in said.assigned_partitions for index in each.partitions)
