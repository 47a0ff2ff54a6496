"""A share session is its connection's, and ends with it, whenever it began."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode
from pathlib import Path

import pytest

from magnetar.kafka.shares.sessions import MAX_ROWS, ROW_BYTES
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import share_acknowledge_request as acknowledging
from magnetar.wire.kafka.messages.share_acknowledge_response import ShareAcknowledgeResponse
from magnetar.wire.kafka.messages.share_fetch_request import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from magnetar.wire.kafka.messages.share_fetch_response import ShareFetchResponse
from tests.hostile.client import frame, request_bytes
from tests.hostile.test_fuzz import Peer, broker, kafka

VERSION = 1
CONNECTIONS = 200


def asking(number: int, partitions: tuple[int, ...] = (0,)) -> bytes:
    rows = [FetchPartition(partition_index=each) for each in partitions]
    topics = [FetchTopic(topic_id=b"t" * 16, partitions=rows)]
    member = urlsafe_b64encode(b"%016d" % number)[:22].decode()
    request = ShareFetchRequest(group_id="g", member_id=member, max_wait_ms=9, max_bytes=9, topics=topics)
    return frame(request_bytes(request, VERSION))


@pytest.mark.parametrize("ends", ["closed", "let go of"])
async def test_one_that_begins_when_its_connection_has_ended_is_not_kept(tmp_path: Path, ends: str) -> None:
    async with broker(tmp_path / "data") as service:
        shares = await kafka(service).services.shares.get()
        stays = Peer(kafka(service), service)
        stays.say(asking(CONNECTIONS))
        for number in range(CONNECTIONS):
            peer = Peer(kafka(service), service)
            peer.say(asking(number))
            for _ in range(number % 5):
                await asyncio.sleep(0)
            if ends == "closed":
                peer.conversation.close()
            else:
                peer.conversation.hang_up()
                await asyncio.sleep(0)
                peer.conversation.close()
        while not stays.answers:  # noqa: ASYNC110 - an answer tells nobody
            await asyncio.sleep(0.01)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(shares.sessions) == 1
        stays.conversation.close()
        assert len(shares.sessions) == 0
        assert service.broker.serving.memory.held_bytes == 0


async def test_a_partition_that_is_named_twice_is_counted_once(tmp_path: Path) -> None:
    async with broker(tmp_path / "data") as service:
        shares = await kafka(service).services.shares.get()
        peer = Peer(kafka(service), service)
        peer.say(asking(1, (0, 1, 0, 0, 1)))
        while not peer.answers:  # noqa: ASYNC110 - an answer tells nobody
            await asyncio.sleep(0.01)
        assert service.broker.serving.memory.held_bytes == 2 * ROW_BYTES
        peer.conversation.close()
        assert (len(shares.sessions), service.broker.serving.memory.held_bytes) == (0, 0)


FETCHES = {
    "asked": {"topics": [FetchTopic(partitions=[FetchPartition(partition_index=0)] * (MAX_ROWS + 1))]},
    "topics": {"topics": [FetchTopic(partitions=[])] * (MAX_ROWS + 1)},
    "forgotten": {"forgotten_topics_data": [ForgottenTopic(partitions=[0] * (MAX_ROWS + 1))]},
}


async def answer(peer: Peer) -> bytes:
    while not peer.answers:  # noqa: ASYNC110 - an answer tells nobody
        await asyncio.sleep(0.01)
    return peer.answers.pop()[4 + 5 :]  # size; correlation id, tags


@pytest.mark.parametrize("what", FETCHES)
async def test_more_rows_than_a_session_has_are_refused_before_any_work(tmp_path: Path, what: str) -> None:
    async with broker(tmp_path / "data") as service:
        shares = await kafka(service).services.shares.get()
        peer = Peer(kafka(service), service)
        request = ShareFetchRequest(group_id="g", member_id="m", **FETCHES[what])
        peer.say(frame(request_bytes(request, VERSION)))
        told = ShareFetchResponse.decode(await answer(peer), VERSION)
        assert told.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert len(shares.sessions) == 0


async def test_so_is_what_is_said_of_more_rows(tmp_path: Path) -> None:
    async with broker(tmp_path / "data") as service:
        peer = Peer(kafka(service), service)
        row = acknowledging.AcknowledgePartition(partition_index=0)
        topics = [acknowledging.AcknowledgeTopic(partitions=[row] * (MAX_ROWS + 1))]
        request = acknowledging.ShareAcknowledgeRequest(
            group_id="g", member_id="m", share_session_epoch=1, topics=topics
        )
        peer.say(frame(request_bytes(request, VERSION)))
        told = ShareAcknowledgeResponse.decode(await answer(peer), VERSION)
        assert told.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
