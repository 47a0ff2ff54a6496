"""Directories whose names in paths are those of an earlier state: topics are found with all that is in them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

import pulsar
import pytest

from magnetar.logs.storage.old_names import mend_names
from magnetar.metadata import ANY, MUST_NOT_EXIST, Delete, MemoryStore, Op, Put, SqliteStore
from magnetar.metadata.segments import decoded, encoded
from tests.process import BrokerProcess

TOPICS, LEDGERS = "/admin/partitioned-topics", "/managed-ledgers"
NAMES = ("plain.x-1", "a b", "a%20b", "ü+c:d", "tilde~star*", "50%")
CURSORS = ("s", "my sub+1")


def once(name: str) -> str:
    return quote(name, safe="")


def twice(name: str) -> str:
    return once(once(name))


Writing = Callable[[str], str]


def nodes(of_topic: Writing, of_ledger: Writing, of_cursor: Writing) -> dict[str, bytes]:
    """Return what lies where, by how names are written."""
    found = {}
    for name in NAMES:
        what = name.encode()
        found[f"{TOPICS}/public/default/persistent/{of_topic(name)}"] = b"topic " + what
        found[f"{TOPICS}/public/default/non-persistent/{of_topic(name)}"] = b"other " + what
        found[f"/magnetar/topic-policies/public/default/persistent/{of_topic(name)}"] = b"policies " + what
        found[f"/schemas/public/default/{of_topic(name)}"] = b"schemas " + what
        for number in range(2):
            log = f"{LEDGERS}/public/default/persistent/{of_ledger(name)}-partition-{number}"
            found[log] = b"ledgers " + what
            for cursor in CURSORS:
                found[f"{log}/{of_cursor(cursor)}"] = cursor.encode() + b" of " + what
    return found


class Interrupted(Exception):
    pass


class Ends(MemoryStore):
    """Takes so many commits, and no more."""

    left = -1

    async def commit(self, ops: Sequence[Op]) -> list[int]:
        if self.left == 0:
            raise Interrupted
        self.left -= 1
        return await super().commit(ops)


async def holds(store: MemoryStore) -> dict[str, bytes]:
    roots = (TOPICS, LEDGERS, "/magnetar/topic-policies", "/schemas")
    return {
        path: each.value
        for root in roots
        for path, each in (await store.get_tree(root)).items()
        if each.value
    }


@pytest.mark.parametrize("is_old", [True, False])
async def test_nodes_get_the_names_that_pulsar_gives_them(is_old: bool) -> None:
    written, wanted = nodes(once, twice, once), nodes(encoded, encoded, encoded)
    for end in itertools.count():
        store = Ends()
        for path, value in (written if is_old else wanted).items():
            await store.commit([Put(path, value, MUST_NOT_EXIST)])
        store.left = end
        try:
            await mend_names(store)
        except Interrupted:
            store.left = -1
            await mend_names(store)  # the next start
        else:
            break
        assert await holds(store) == wanted
    moved = sum(old != new for old, new in zip(written, wanted, strict=True)) if is_old else 0
    assert end == moved + 1
    assert await holds(store) == wanted
    store.left = -1
    await store.commit([Delete(f"{TOPICS}/public/default/persistent/{encoded('a b')}", ANY)])
    left = await holds(store)
    store.left = 0
    await mend_names(store)  # changes nothing any more
    assert await holds(store) == left


async def test_what_is_another_topics_by_its_new_name_stays_that_topics() -> None:
    store = MemoryStore()
    for name in ("a b", "a%20b"):
        await store.commit([Put(f"{TOPICS}/public/default/persistent/{encoded(name)}", b"t", MUST_NOT_EXIST)])
    log = f"{LEDGERS}/public/default/persistent/{encoded('a%20b')}-partition-0"
    assert log == f"{LEDGERS}/public/default/persistent/{twice('a b')}-partition-0"
    await store.commit([Put(log, b"of the second alone", MUST_NOT_EXIST)])
    before = await holds(store)
    await mend_names(store)
    assert await holds(store) == before


@pytest.mark.slow
async def test_topics_of_an_old_directory_are_there_with_what_is_in_them(tmp_path: Path) -> None:
    data = tmp_path / "data"
    names = [f"persistent://public/default/{name}" for name in NAMES]
    with BrokerProcess(data, "--pulsar", "127.0.0.1:0") as broker:
        client = pulsar.Client(broker.pulsar_url, logger=None)
        for name in names:
            consumer = client.subscribe(name, "my sub+1")
            producer = client.create_producer(name, batching_enabled=False)
            for number in range(10):
                producer.send(b"%d" % number)
            for _ in range(4):
                consumer.acknowledge(consumer.receive(20_000))
        client.close()
    store = SqliteStore(data / "metadata.sqlite")
    await store.commit([Delete("/magnetar/names-in-paths", ANY)])
    await give_old_names(store)
    await store.close()
    with BrokerProcess(data, "--pulsar", "127.0.0.1:0") as broker:
        client = pulsar.Client(broker.pulsar_url, logger=None)
        for name in names:
            consumer = client.subscribe(name, "my sub+1")
            assert [consumer.receive(20_000).data() for _ in range(6)] == [b"%d" % n for n in range(4, 10)]
            reader = client.create_reader(name, pulsar.MessageId.earliest)
            assert [reader.read_next(20_000).data() for _ in range(10)] == [b"%d" % n for n in range(10)]
        client.close()


async def give_old_names(store: SqliteStore) -> None:
    """Do the opposite, the longest names first."""
    moves: dict[str, str] = {}
    for path in await store.get_tree(TOPICS):
        folder, _, name = path.rpartition("/")
        moves[path] = f"{folder}/{once(decoded(name))}"
    for path in await store.get_tree(LEDGERS):
        if path.count("/") >= 5:
            tenant, namespace, log, *cursors = (
                path.removeprefix(f"{LEDGERS}/").replace("/persistent/", "/").split("/")
            )
            base, mark, number = log.rpartition("-partition-")
            old = f"{LEDGERS}/{tenant}/{namespace}/persistent/{twice(decoded(base))}{mark}{number}"
            moves[path] = "/".join((old, *(once(decoded(each)) for each in cursors)))
    for path, old in sorted(moves.items(), key=lambda move: (-len(move[0].split("/", 6)[5]), -len(move[0]))):
        stored = await store.get(path)
        if stored is not None and old != path:
            await store.commit([Put(old, stored.value, MUST_NOT_EXIST), Delete(path, stored.version)])
