"""A broker's services in this process, on a disk that can be made to fail; groups are spoken to directly."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from magnetar.admin.live import LiveBroker
from magnetar.coordination.caller import Caller
from magnetar.kafka.coordinators.facts import Committer, OffsetCommit
from magnetar.kafka.handler import KafkaProtocolHandler
from magnetar.kafka.partitions.partition import Partition, PreparedBatch
from magnetar.kafka.services import KafkaServices
from magnetar.ledger.files.disk import File, JournalFile, RealDisk, RealFile, RealJournalFile
from magnetar.ledger.files.engine import FilesEngine
from magnetar.ledger.port import wall_clock_ms
from magnetar.metadata import SqliteStore
from magnetar.node.broker import Broker
from magnetar.node.duties import Duties
from magnetar.records.batch import PlainRecord, encode_batch
from magnetar.records.check import check_batch
from magnetar.records.compression import Buffer
from magnetar.settings.node import NodeSettings
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from magnetar.wire.kafka.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from magnetar.wire.kafka.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from magnetar.wire.kafka.messages.join_group_response import JoinGroupResponse
from magnetar.wire.kafka.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment

NO_MEMBER = Committer("", None, -1, -1)


async def drafted(partition: Partition, batch: memoryview) -> PreparedBatch:
    """Check a producer's batch as Produce does."""
    draft = partition.check(batch)
    return draft if isinstance(draft, PreparedBatch) else await draft


class SickDisk(RealDisk):
    """A real disk that can be full, broken, or slow to flush."""

    def __init__(self) -> None:
        self.full = False
        self.broken = False
        self.flushes = threading.Event()
        self.flushes.set()

    def open(self, path: Path, *, create: bool = False) -> File:
        return _SickFile(self, path, create=create)

    def kernel_writes(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing: `_SlowJournal` is to see every write."""

    def open_journal(self, path: Path, size: int) -> JournalFile:
        super().open_journal(path, size).close()
        return _SlowJournal(self, path, size)


class _SickFile(RealFile):
    def __init__(self, disk: SickDisk, path: Path, *, create: bool) -> None:
        super().__init__(path, create=create)
        self._disk = disk

    def write(self, parts: Sequence[Buffer], at: int) -> None:
        if self._disk.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(parts, at)


class _SlowJournal(RealJournalFile):
    def __init__(self, disk: SickDisk, path: Path, size: int) -> None:
        super().__init__(path, size)
        self._disk = disk

    def write(self, data: memoryview, at: int) -> None:
        self._disk.flushes.wait(30)
        if self._disk.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().write(data, at)


class House:
    """One broker. ``ask`` answers operators; ``ask_later`` does so as if time had gone by."""

    def __init__(self, root: Path, **settings: str) -> None:
        self.root = root
        self.disk = SickDisk()
        texts = {"group.min.session.timeout.ms": "100", "group.initial.rebalance.delay.ms": "0"}
        given = texts | {name.replace("_", "."): value for name, value in settings.items()}
        self._settings = Settings(NodeSettings(data_dir=str(root))).with_values(given)
        self._handler = KafkaProtocolHandler()
        self.services: KafkaServices
        self.ask: LiveBroker

    async def __aenter__(self) -> House:
        self.root.mkdir(parents=True, exist_ok=True)
        self._store = SqliteStore(self.root / "metadata.sqlite")
        self._engine = FilesEngine(self.root, self._store, self.disk)
        await self._engine.start()
        broker = Broker(self._settings, self._store, self._engine)
        await broker.start()
        self._handler.initialize(self._settings)
        await self._handler.start(broker)
        self.duties = Duties(broker)
        self.duties.start()
        self.services = self._handler.services
        self.ask = LiveBroker(self.services.broker)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.disk.full = self.disk.broken = False
        self.disk.flushes.set()
        await self._handler.close()
        await self.services.broker.background.close()
        await self._engine.close()
        self._store.blocking.close()

    def ask_later(self, ms: int) -> LiveBroker:
        return LiveBroker(self.services.broker, lambda: wall_clock_ms() + ms)

    # Topics.

    async def topic(self, name: str = "t", partitions: int = 1, **configs: str) -> Partition:
        texts = {key.replace("_", "."): value for key, value in configs.items()}
        made = await self.services.broker.create_topic(name, partitions, texts)
        return await self.services.partitions.get(made, 0)

    async def produce(self, partition: Partition, records: int = 10) -> None:
        """Append one batch and wait until it is as durable as the flush policy wants it."""
        durable = self.begin_produce(partition, records)
        if durable is not None:
            await durable

    def begin_produce(self, partition: Partition, records: int = 10) -> asyncio.Future[None] | None:
        now_ms = wall_clock_ms()
        return self.begin_append(
            partition, encode_batch([PlainRecord(b"k%d" % i, b"v%d" % i, (), now_ms) for i in range(records)])
        )

    def begin_append(self, partition: Partition, batch: bytes) -> asyncio.Future[None] | None:
        return partition.produce(PreparedBatch(memoryview(batch), check_batch(batch))).done

    # Groups.

    def begin_join(
        self, group: str, member: str = "", topics: Sequence[str] = ("t",), session_ms: int = 30_000
    ) -> asyncio.Task[JoinGroupResponse]:
        metadata = b"\0\0" + ConsumerProtocolSubscription(topics=list(topics)).encode(0)
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=60_000,
            member_id=member,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        # Version 3 joins without being given a member id first.
        return asyncio.ensure_future(self.services.groups.join(request, Caller("reader", "/127.0.0.1", 3)))

    async def join_and_sync(self, group: str, assigned: Sequence[tuple[str, int]], **options: object) -> str:
        """Become the group's only member with an assignment, and give the member id."""
        joined = await self.begin_join(group, **options)  # type: ignore[arg-type]
        topics: dict[str, list[int]] = {}
        for topic, index in assigned:
            topics.setdefault(topic, []).append(index)
        said = ConsumerProtocolAssignment(
            assigned_partitions=[TopicPartition(topic=name, partitions=each) for name, each in topics.items()]
        )
        mine = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"\0\0" + said.encode(0))
        await self.services.groups.sync(
            SyncGroupRequest(
                group_id=group,
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments=[mine],
            )
        )
        return joined.member_id

    async def commit(self, group: str, offset: int, topic: str = "t", partition: int = 0) -> None:
        """Commit as somebody outside the group; a group with members is told by its only one."""
        who = NO_MEMBER
        view = next((each for each in self.services.groups.list_groups() if each.group_id == group), None)
        if view is not None and view.members:
            who = Committer(view.members[0].member_id, None, view.generation, -1)
        found = self.services.broker.topic(topic)
        (code,) = await self.services.groups.commit(
            group, who, [OffsetCommit(topic, found.topic_id, partition, offset, -1, "")], 9
        )
        assert code == 0, code
