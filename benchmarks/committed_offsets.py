"""A million committed offsets: how soon a broker that is started again tells those of all its groups."""

from __future__ import annotations

import time

from benchmarks.attacks.asked import of, part
from benchmarks.peers.server import Server
from benchmarks.samples import Samples
from benchmarks.thin import ThinClient
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages import ApiKey
from magnetar.wire.kafka.messages.offset_commit_response import OffsetCommitResponse
from magnetar.wire.kafka.messages.offset_fetch_response import OffsetFetchResponse

GROUPS = [f"committed-{number}" for number in range(1000)]
TOPICS, PARTITIONS = [f"read-{number}" for number in range(10)], 100
_COMMIT, _FETCH = 9, 8  # the last that name topics
_LOADING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def measure(server: Server, samples: Samples, restarts: int) -> None:
    """Fill a fresh broker, then restart it, once cleanly and then killed, and ask at once."""
    server.start()
    with ThinClient.to(server.address) as client:
        client.create_topics(TOPICS, PARTITIONS)
        client.wait_for_coordinators(GROUPS)
        began = time.perf_counter()
        for number, group in enumerate(GROUPS):
            _commit(client, group, number)
        samples.add("a million committed offsets: committed, s", server.name, time.perf_counter() - began)
    for end in [server.stop, server.kill] * restarts:
        end()
        server.launch()
        with ThinClient(server.connect(120)) as client:
            _read(client)
            taken = time.perf_counter() - server.launched
        samples.add("a million committed offsets: restart to serving, s", server.name, taken)
        samples.add("a million committed offsets: memory, MB", server.name, server.rss_mb())


def _commit(client: ThinClient, group: str, offset: int) -> None:
    row, topics = (
        part(ApiKey.OFFSET_COMMIT, f"OffsetCommitRequest{name}") for name in ("Partition", "Topic")
    )
    rows = [row(partition_index=index, committed_offset=offset) for index in range(PARTITIONS)]
    request = of(ApiKey.OFFSET_COMMIT)(
        group_id=group, topics=[topics(name=name, partitions=rows) for name in TOPICS]
    )
    until = time.perf_counter() + 60
    while True:
        told = client.call(request, OffsetCommitResponse, _COMMIT)
        codes = {each.error_code for topic in told.topics for each in topic.partitions}
        if codes == {0}:
            return
        if not codes <= {0, *_LOADING} or time.perf_counter() > until:
            raise RuntimeError(f"{group}: errors {codes}")
        time.sleep(0.01)


def _read(client: ThinClient) -> None:
    """Ask for an offset of each group, again and again until all are told."""
    group, topics = (part(ApiKey.OFFSET_FETCH, f"OffsetFetchRequest{name}") for name in ("Group", "Topics"))
    waiting = dict.fromkeys(GROUPS)
    until = time.perf_counter() + 300
    while waiting:
        rows = [
            group(group_id=name, topics=[topics(name=TOPICS[-1], partition_indexes=[PARTITIONS - 1])])
            for name in waiting
        ]
        told = client.call(of(ApiKey.OFFSET_FETCH)(groups=rows), OffsetFetchResponse, _FETCH)
        for each in told.groups:
            if each.error_code in _LOADING and time.perf_counter() < until:
                continue
            found = None if each.error_code else each.topics[0].partitions[0].committed_offset
            if found != GROUPS.index(each.group_id):
                raise RuntimeError(f"{each.group_id}: error {each.error_code}, offset {found}")
            del waiting[each.group_id]
        time.sleep(0.1)  # as clients wait before they ask again
