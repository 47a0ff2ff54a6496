"""What a form orders is carried out by whichever worker has the topic or the group, whoever got the form."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.console.forms import done, opened, send, text_of, unique
from tests.workers.house import PARTITIONS, House

pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    words = ("--set", "console.read.only=false")
    with House(tmp_path_factory.mktemp("workers") / "data", 2, *words) as house:
        yield house
    assert "Traceback" not in house.log.read_text()


@pytest.fixture
def workers(house: House) -> Iterator[list[httpx.Client]]:
    """The console of each worker, in one browser: logins and cookies know no ports."""
    name = unique("where")
    house.make_topic(name)
    house.until_shared(name)
    found = set()
    for number in range(PARTITIONS):
        path = f"persistent/public/default/{name}-partition-{number}"
        url = f"{house.served['http'][0]}/lookup/v2/topic/{path}"
        found.add(httpx.get(url, trust_env=False).raise_for_status().json()["httpUrl"])
    clients = [httpx.Client(base_url=url, timeout=60, trust_env=False) for url in sorted(found)]
    assert len(clients) == 2
    yield clients
    for each in clients:
        each.close()


def test_records_groups_and_topics_of_all_workers(house: House, workers: list[httpx.Client]) -> None:
    name, group = unique("shared"), unique("group")
    house.make_topic(name)
    house.until_shared(name)
    one, other = workers
    for partition in range(PARTITIONS):
        told = done(one, "produce", {"topic": name}, value="x", schema="", partition=str(partition))
        assert f"{name}-{partition}@0" in told
    for http in workers:
        done(http, "reset-group", {"group": group}, to="latest", topic=name)
        preview = send(http, opened(http, "reset-group", group=group), "preview", to="earliest")
        assert f"{PARTITIONS} records would be read again" in text_of(preview)
    consumer = Consumer({"bootstrap.servers": house.address, "group.id": group})
    places = [TopicPartition(name, each) for each in range(PARTITIONS)]
    assert [each.offset for each in consumer.committed(places, 60)] == [1] * PARTITIONS
    consumer.close()
    done(other, "delete-topic", {"topic": name}, confirm=name)


def test_a_subscription_of_another_workers_topic(house: House, workers: list[httpx.Client]) -> None:
    names = [unique("alone") for _ in range(6)]
    for name in names:
        root = f"/admin/v2/persistent/public/default/{name}"
        assert workers[0].put(root).status_code == 204
        made = workers[0].put(
            f"{root}/subscription/sub", json={"ledgerId": -1, "entryId": -1}, follow_redirects=True
        )
        assert made.status_code == 204, made.text
        done(workers[0], "produce", {"topic": name}, value="x", schema="")
        about = {"topic": name, "subscription": "sub"}
        for http in workers:
            done(http, "reset-subscription", about, to="latest")
            done(http, "reset-subscription", about, to="earliest")
            done(http, "skip-message", about)
        done(workers[1], "delete-subscription", about, confirm="sub")


def test_a_form_is_carried_out_once_on_any_worker(house: House, workers: list[httpx.Client]) -> None:
    name = unique("once")
    house.make_topic(name)
    one, other = workers
    form = opened(one, "produce", topic=name)
    other.cookies = one.cookies
    assert send(one, form, value="x", schema="", partition="0").status_code == 200
    assert send(other, form, value="x", schema="", partition="0").status_code == 409
