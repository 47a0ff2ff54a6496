"""Partitions of one cluster copied to another as they lie in its log: the same batches at the same offsets.

Whole batches are fetched from the leaders there, and sent on as they came to the leaders here, whose topics know by
their ``migration.writer`` that it is no producer who sends them. Where to go on after a failure of either side is asked
of the log here: it ends where the next batch is due.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from magnetar.client.cluster import EARLIEST, LATEST, Cluster, Partition
from magnetar.client.connection import Connection
from magnetar.client.errors import BrokerRefused, ClientError, check
from magnetar.records.batch import MAX_GAP, batches, gap
from magnetar.records.errors import RecordsError
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from magnetar.wire.kafka.messages.fetch_response import FetchResponse
from magnetar.wire.kafka.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from magnetar.wire.kafka.messages.produce_response import ProduceResponse

_FETCH_BYTES = 8 << 20
_PARTITION_BYTES = 2 << 20
_OUT_OF_RANGE = ErrorCode.OFFSET_OUT_OF_RANGE


@dataclass(slots=True)
class PartitionCopy:
    """How far one partition's copy is. Offsets: ``next`` is the one to be fetched."""

    next: int
    high_watermark: int = 0
    """The other log's, when it was last asked."""
    last_stable_offset: int = 0
    fetched_to: int = -1
    """Up to where it was asked for last: before, nothing is known of the other log's end."""
    expired: int = 0
    """Offsets that the other cluster had let go of before they were copied."""

    @property
    def is_caught_up(self) -> bool:
        """Whether all was here that could be read there when it was last asked."""
        return self.fetched_to >= 0 and self.next >= self.high_watermark


class _Chunk(NamedTuple):
    """Whole batches of one partition, and the offset behind them."""

    key: Partition
    data: memoryview
    next: int


@dataclass(slots=True)
class Copier:
    """Copies some partitions, round by round. One thread uses it; raises ``ClientError`` for what does not pass."""

    source: Cluster
    target: Cluster
    writer: str
    """The transactional id that the target's topics know."""
    copied: dict[Partition, PartitionCopy] = field(default_factory=dict)
    copied_bytes: int = 0

    def add(self, keys: Iterable[Partition]) -> None:
        """Copy these from now on, from where their logs here end."""
        wanted = [key for key in keys if key not in self.copied]
        for key, end in self._ends(wanted).items():
            self.copied[key] = PartitionCopy(end)

    def begin_at(self, key: Partition, first: int) -> None:
        """Have an empty log begin there: batches without records take the offsets before it."""
        at, fillers = self.copied[key].next, []
        while at < first:
            offsets = min(first - at, MAX_GAP)
            fillers.append(gap(at, offsets))
            at += offsets
        self._send([_Chunk(key, memoryview(b"".join(fillers)), first)])
        self.copied_bytes -= sum(map(len, fillers))

    def round(self, *, max_wait_ms: int) -> int:
        """Ask each leader there once, and append what comes; give how many bytes that was."""
        before = self.copied_bytes
        in_doubt = False

        def attempt() -> None:
            nonlocal in_doubt
            if in_doubt:
                self.target.close()
                self._go_on_from_the_end()
            in_doubt = True  # until all that was sent is acknowledged
            self._round(max_wait_ms)

        self.source.retrying(attempt)
        return self.copied_bytes - before

    def _round(self, max_wait_ms: int) -> None:
        asked: deque[tuple[Connection, dict[bytes, str]]] = deque()
        # Who came last is asked first the next time: an answer may be full with the first partitions alone.
        for connection, keys in self.source.by_leader(reversed(list(self.copied))).items():
            asked.append((connection, self._ask(connection, keys, max_wait_ms)))
        self.copied = dict(reversed(self.copied.items()))
        while asked:
            connection, names = asked.popleft()
            self._send(self._whole(connection.receive(), names))

    def _ask(self, connection: Connection, keys: list[Partition], max_wait_ms: int) -> dict[bytes, str]:
        topics: dict[str, FetchTopic] = {}
        names: dict[bytes, str] = {}
        for name, index in keys:
            topic_id = self.source.topic(name).topic_id
            names[topic_id] = name
            topic = topics.setdefault(name, FetchTopic(topic=name, topic_id=topic_id, partitions=[]))
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    fetch_offset=self.copied[name, index].next,
                    partition_max_bytes=_PARTITION_BYTES,
                )
            )
        connection.send(
            FetchRequest(
                max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=_FETCH_BYTES, topics=list(topics.values())
            )
        )
        return names

    def _whole(self, answer: FetchResponse, names: dict[bytes, str]) -> list[_Chunk]:
        """Return the whole batches of an answer, and note how far each log goes."""
        check(answer.error_code, "Fetch")
        chunks = []
        for topic in answer.responses:
            name = topic.topic or names[bytes(topic.topic_id)]
            for row in topic.partitions:
                key = name, row.partition_index
                copied = self.copied[key]
                if row.error_code == _OUT_OF_RANGE:
                    self._skip_expired(key)
                    continue
                check(row.error_code, f"Fetch of {name}-{row.partition_index} at offset {copied.next}")
                copied.high_watermark, copied.last_stable_offset = row.high_watermark, row.last_stable_offset
                copied.fetched_to = copied.next
                records = row.records if row.records is not None else b""
                assert not isinstance(records, list)
                if records:
                    chunks.append(_cut(key, memoryview(records), copied.next))
        return chunks

    def _skip_expired(self, key: Partition) -> None:
        """Go on where the other log begins, if that is behind what was asked for; otherwise it is another log."""
        copied = self.copied[key]
        first = self.source.list_offsets({key: EARLIEST})[key]
        if first <= copied.next:
            raise ClientError(
                f"{key[0]}-{key[1]} ends before offset {copied.next} there, which is copied already: "
                "was the topic deleted and made anew?"
            )
        copied.expired += (
            first - copied.next if copied.next else 0
        )  # an empty log begins where the other one does
        copied.next = first

    def _send(self, chunks: list[_Chunk]) -> None:
        groups: dict[Connection, list[_Chunk]] = {}
        for chunk in chunks:
            groups.setdefault(self.target.leader(*chunk.key), []).append(chunk)
        for connection, group in groups.items():
            connection.send(self._request(group))
        failed: ClientError | None = None
        for connection, group in groups.items():
            failed = self._settle(connection.receive(), group) or failed
        if failed is not None:
            raise failed

    def _request(self, group: list[_Chunk]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for chunk in group:
            name, index = chunk.key
            topics.setdefault(name, []).append(PartitionProduceData(index=index, records=chunk.data))
        return ProduceRequest(
            transactional_id=self.writer,
            acks=-1,
            timeout_ms=int(self.target.settings.request_timeout_s * 1000),
            topic_data=[
                TopicProduceData(name=name, topic_id=self.target.topic(name).topic_id, partition_data=rows)
                for name, rows in topics.items()
            ],
        )

    def _settle(self, answer: ProduceResponse, group: list[_Chunk]) -> ClientError | None:
        rows = [row for topic in answer.responses for row in topic.partition_responses]
        failed: ClientError | None = None
        # Brokers answer in the order of the request.
        of_topic: dict[str, list[_Chunk]] = {}
        for chunk in group:
            of_topic.setdefault(chunk.key[0], []).append(chunk)
        for chunk, row in zip((each for some in of_topic.values() for each in some), rows, strict=True):
            if row.error_code:
                name, index = chunk.key
                failed = BrokerRefused(row.error_code, f"Produce to {name}-{index}", row.error_message)
                # Somebody else has the topic now, or it is no more being migrated; or a batch is here that was not
                # acknowledged.
                if row.error_code in (ErrorCode.NOT_ENOUGH_REPLICAS, _OUT_OF_RANGE):
                    failed.retriable = row.error_code == _OUT_OF_RANGE
                continue
            self.copied[chunk.key].next = chunk.next
            self.copied_bytes += len(chunk.data)
        return failed

    def _go_on_from_the_end(self) -> None:
        for key, end in self._ends(self.copied).items():
            self.copied[key].next = max(end, 0)

    def _ends(self, keys: Iterable[Partition]) -> dict[Partition, int]:
        times = dict.fromkeys(keys, LATEST)
        return self.target.retrying(lambda: self.target.list_offsets(times)) if times else {}


def _cut(key: Partition, data: memoryview, due: int) -> _Chunk:
    """Return the whole batches; raise ``ClientError`` for what is none of version 2."""
    size, following = 0, due
    try:
        for header, _ in batches(data):
            size += header.size
            following = header.last_offset + 1
    except RecordsError as error:
        raise ClientError(f"{key[0]}-{key[1]} cannot be copied at offset {following}: {error}") from None
    if not size:
        raise ClientError(f"{key[0]}-{key[1]} has no whole batch at offset {due}")
    return _Chunk(key, data[:size], following)
