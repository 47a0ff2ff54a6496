"""What operators are told of Pulsar's transactions, whichever worker has a coordinator, or a topic."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.transactions.clients import make_topic
from tests.workers.house import House
from tests.workers.pulsar_routed import Routed

pytestmark = [pytest.mark.slow]
COORDINATORS, PARTITIONS = 8, 8


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    data = tmp_path_factory.mktemp("workers") / "data"
    with House(data, 2, "--set", "transactionCoordinatorEnabled=true") as house:
        make_topic(house.address, "t", PARTITIONS)
        house.until_shared("t")
        yield house
    assert "Traceback" not in house.log.read_text()


def test_transactions_of_all_coordinators_are_told_of_by_each_worker(house: House) -> None:
    with Routed(house) as client:
        txns = [client.begin(number) for number in range(COORDINATORS)]
        for number, txn in enumerate(txns):
            topic = f"persistent://public/default/t-partition-{number}"
            client.subscribe(topic, "s").close()
            client.produce(topic, [b"before"])
            client.add_topic(txn, topic)
            client.produce(topic, [b"within"], txn)
            client.add_subscription(txn, topic, "s")
            consumer = client.subscribe(topic, "s")
            message = consumer.receive(30)
            assert message is not None
            consumer.acknowledge(message.place, txn=txn)
            consumer.close()
        for url in workers(house):
            with httpx.Client(
                base_url=f"{url}/admin/v3/transactions/", timeout=60, follow_redirects=True
            ) as http:
                tells_of_all(http, [(txn[0], txn[1]) for txn in txns])
        (first, *_) = workers(house)
        with httpx.Client(
            base_url=f"{first}/admin/v3/transactions/", timeout=60, follow_redirects=True
        ) as http:
            for txn in txns:
                http.post(f"abortTransaction/{txn[0]}/{txn[1]}").raise_for_status()
            assert http.get("slowTransactions/0").json() == {}
            stats = http.get("coordinatorStats").json()
            assert [stats[str(number)]["ongoingTxnSize"] for number in range(COORDINATORS)] == [
                0
            ] * COORDINATORS


def workers(house: House) -> list[str]:
    """Return where the admin REST of each is."""
    found = set()
    for number in range(PARTITIONS):
        url = f"{house.served['http'][0]}/lookup/v2/topic/persistent/public/default/t-partition-{number}"
        found.add(httpx.get(url).raise_for_status().json()["httpUrl"])
    assert len(found) == 2
    return sorted(found)


def tells_of_all(http: httpx.Client, txns: list[tuple[int, int]]) -> None:
    ids = {f"({most},{least})" for most, least in txns}
    stats = http.get("coordinatorStats").raise_for_status().json()
    assert [stats[str(number)]["ongoingTxnSize"] for number in range(COORDINATORS)] == [1] * COORDINATORS
    slow = http.get("slowTransactions/0").raise_for_status().json()
    assert set(slow) == ids
    assert http.get("slowTransactions/1000000").raise_for_status().json() == {}
    for number, (most, least) in enumerate(txns):
        topic = f"persistent://public/default/t-partition-{number}"
        one = http.get("coordinatorStats", params={"coordinatorId": number}).raise_for_status().json()
        assert one == stats[str(number)]
        told = http.get(f"transactionMetadata/{most}/{least}").raise_for_status().json()
        assert told == slow[told["txnId"]]
        assert told["status"] == "OPEN"
        assert told["producedPartitions"][topic]["startPosition"], "it is in a topic of whichever worker"
        place = told["ackedPartitions"][topic]["s"]
        path = f"public/default/t-partition-{number}"
        pending = http.get(f"transactionInPendingAckStats/{path}/s/{most}/{least}").raise_for_status().json()
        assert pending == place
        pending = http.get(f"pendingAckStats/{path}/s").raise_for_status().json()
        assert (pending["state"], pending["ongoingTxnSize"], pending["pendingAcks"]) == ("Ready", 1, 1)
    assert http.get("coordinatorStats", params={"coordinatorId": 99}).status_code == 404
    assert http.get("slowTransactions/0", params={"coordinatorId": 99}).status_code == 404
    assert http.get("transactionMetadata/99/1").status_code == 404
    assert http.get("transactionMetadata/1/123456").status_code == 404
