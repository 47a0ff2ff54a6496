"""What a client subscribed to, on its way to it: one task for each partition reads batches when there is room."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from magnetar.base.errors import BrokerError
from magnetar.kafka.partitions.registry import Partitions
from magnetar.ledger.errors import LedgerClosed, LedgerError, LedgerFenced, OffsetOutOfRange
from magnetar.records.batch import PlainRecord, each_record, read_header
from magnetar.topics.topic import Topic

_READ_BYTES = 256 << 10
_log = logging.getLogger("magnetar.mqtt")


class Receiver(Protocol):
    """The client's side: `room` waits while the client does not take, or acknowledge, what it was sent."""

    async def room(self, *, acknowledged: bool) -> None: ...

    def deliver(self, topic: Topic, record: PlainRecord, *, acknowledged: bool) -> None: ...


class Delivery:
    """One partition's messages to one client, from an offset on."""

    def __init__(
        self, partitions: Partitions, topic: Topic, index: int, offset: int, receiver: Receiver
    ) -> None:
        self._partitions = partitions
        self._topic = topic
        self._index = index
        self._offset = offset
        self._receiver = receiver
        self.acknowledged = False
        """Whether messages are sent with QoS 1."""
        self._task: asyncio.Task[None] | None = None

    @property
    def is_started(self) -> bool:
        """Whether it has begun."""
        return self._task is not None

    def start(self, failed: Callable[[str], None]) -> None:
        """Begin; ``failed`` is called with why if it ends by itself before the topic does."""
        self._task = asyncio.ensure_future(self._run(failed))

    def end(self) -> None:
        """Send nothing more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self, failed: Callable[[str], None]) -> None:
        try:
            while not self._topic.deleted:
                await self._some()
        except BrokerError as error:
            if not self._topic.deleted:
                failed(str(error))
        except Exception as error:
            _log.exception("messages of %s cannot be sent on", self._topic.kafka_name)
            failed(str(error))

    async def _some(self) -> None:
        """Send what is there now; wait for more if that is nothing."""
        await self._receiver.room(acknowledged=self.acknowledged)
        # Asked each time: what nobody waits for may have been closed meanwhile, and is opened again by that.
        partition = await self._partitions.get(self._topic, self._index)
        rung = asyncio.Event()
        partition.wait(rung.set)
        try:
            batches, _ = await partition.read(self._offset, _READ_BYTES)
            if not batches:
                await rung.wait()
        except OffsetOutOfRange:
            self._offset = partition.log.log_start_offset  # older messages have been let go of
            return
        except (LedgerClosed, LedgerFenced):
            return  # it was closed just now
        except LedgerError as error:
            raise BrokerError(str(error)) from error
        finally:
            partition.leave(rung.set)
        for batch in batches:
            header = read_header(batch)
            if not header.is_control:
                await self._send(batch)
            self._offset = max(self._offset, header.last_offset + 1)

    async def _send(self, batch: memoryview | bytes) -> None:
        for record in each_record(batch):
            if record.offset >= self._offset:
                await self._receiver.room(acknowledged=self.acknowledged)
                self._receiver.deliver(self._topic, record, acknowledged=self.acknowledged)
                self._offset = record.offset + 1
