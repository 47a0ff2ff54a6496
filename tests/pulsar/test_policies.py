"""Policies of namespaces and topics are kept to: whoever is one too many, too fast or too far behind is told so."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import httpx
import pulsar
import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka import Producer as KafkaProducer
from confluent_kafka.admin import AdminClient, NewTopic
from pulsar import ConsumerType

from magnetar.pulsar.rate_limits import RateLimit
from magnetar.topics.limits import NAMESPACE_KEYS, Limits, Quota, Rate, decode_limits
from magnetar.wire.pulsar.pulsar_pb2 import BaseCommand, Schema, ServerError
from tests.process import BrokerProcess
from tests.pulsar import raw
from tests.pulsar.conftest import serving
from tests.pulsar.test_client import WAIT_MS, nothing_comes, numbers, receive, send

_numbers = itertools.count()
EARLIEST = pulsar.InitialPosition.Earliest


@pytest.fixture(scope="module")
def pulsar_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = (
        "group.initial.rebalance.delay.ms=0",
        "backlogQuotaCheckIntervalInSeconds=1",
        "message.expiry.check.interval.seconds=1",
        "brokerDeleteInactiveTopicsFrequencySeconds=1",
    )
    with serving(tmp_path_factory.mktemp("policies"), *settings) as process:
        yield process


class Room:
    """A namespace of one's own, and a topic in it."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        self.namespace = f"policies/n{next(_numbers)}"
        http.put("/admin/v2/tenants/policies", json={})
        assert http.put(f"/admin/v2/namespaces/{self.namespace}").status_code == 204
        self.topic = f"persistent://{self.namespace}/t"
        self.fleeting = f"non-persistent://{self.namespace}/t"
        self.path = f"/admin/v2/persistent/{self.namespace}/t"
        assert http.put(self.path).status_code == 204

    def put(self, policy: str, value: Any, **query: str) -> None:
        """Set a policy of the namespace, which must then be shown."""
        at = f"/admin/v2/namespaces/{self.namespace}/{policy}"
        assert self.http.post(at, json=value, params=query).status_code == 204
        if policy != "backlogQuota":
            assert self.http.get(at).json() == value

    def put_topic(self, policy: str, value: Any, **query: str) -> None:
        """Set a policy of the topic, which must then be shown."""
        assert self.http.post(f"{self.path}/{policy}", json=value, params=query).status_code == 204
        if policy != "backlogQuota":
            assert self.http.get(f"{self.path}/{policy}").json() == value

    def remove(self, policy: str) -> None:
        assert self.http.delete(f"/admin/v2/namespaces/{self.namespace}/{policy}").status_code == 204
        assert self.http.get(f"/admin/v2/namespaces/{self.namespace}/{policy}").status_code == 204

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get(f"{self.path}/stats").json()
        return found

    def backlog(self, subscription: str) -> int:
        return int(self.stats()["subscriptions"][subscription]["msgBacklog"])


@pytest.fixture
def room(pulsar_broker: BrokerProcess) -> Iterator[Room]:
    with httpx.Client(base_url=f"http://{pulsar_broker.served['http'][0]}", timeout=30) as http:
        yield Room(http)


def until(holds: Callable[[], bool]) -> None:
    while not holds():
        time.sleep(0.05)


def refused(error: str) -> Any:
    return pytest.raises(pulsar.PulsarException, match=error)


# -- how many


@pytest.mark.parametrize("fleeting", [False, True])
def test_producers_consumers_and_subscriptions_are_counted(
    client: pulsar.Client, room: Room, fleeting: bool
) -> None:
    topic = room.fleeting if fleeting else room.topic
    room.put("maxProducersPerTopic", 1)
    producer = client.create_producer(topic)
    with refused("ProducerBusy"):
        client.create_producer(topic)
    producer.close()
    client.create_producer(topic).close()
    room.put("maxConsumersPerSubscription", 1)
    shared = client.subscribe(topic, "a", ConsumerType.Shared)
    with refused("ConsumerBusy"):
        client.subscribe(topic, "a", ConsumerType.Shared)
    room.remove("maxConsumersPerSubscription")
    room.put("maxConsumersPerTopic", 2)
    client.subscribe(topic, "a", ConsumerType.Shared)
    with refused("ConsumerBusy"):
        client.subscribe(topic, "b", ConsumerType.Shared)
    room.remove("maxConsumersPerTopic")
    room.put("maxSubscriptionsPerTopic", 1)
    with refused("NotAllowed"):
        client.subscribe(topic, "b")
    if not fleeting:
        assert room.http.put(f"{room.path}/subscription/c").status_code == 409
    shared.close()


def test_a_topic_says_it_for_itself_and_follows_its_namespace_again(
    client: pulsar.Client, room: Room
) -> None:
    room.put("maxProducersPerTopic", 2)
    room.put_topic("maxProducers", 1)
    assert room.http.get(f"{room.path}/maxProducers", params={"applied": "true"}).json() == 1
    client.create_producer(room.topic)
    with refused("ProducerBusy"):
        client.create_producer(room.topic)
    assert room.http.delete(f"{room.path}/maxProducers").status_code == 204
    assert room.http.get(f"{room.path}/maxProducers", params={"applied": "true"}).json() == 2
    client.create_producer(room.topic)
    with refused("ProducerBusy"):
        client.create_producer(room.topic)


def test_topics_of_a_namespace_are_counted_whoever_makes_them(
    client: pulsar.Client, room: Room, pulsar_broker: BrokerProcess
) -> None:
    room.put("maxTopicsPerNamespace", 3)
    root = f"/admin/v2/persistent/{room.namespace}"
    assert room.http.put(f"{root}/two/partitions", json=2).status_code == 204
    with refused("NotAllowed"):
        client.create_producer(f"persistent://{room.namespace}/more")
    assert room.http.put(f"{root}/more").status_code == 409
    assert room.http.put(f"{root}/more/partitions", json=2).status_code == 412
    assert room.http.post(f"{root}/two/partitions", json=3).status_code == 412
    admin = AdminClient({"bootstrap.servers": pulsar_broker.address})
    made = admin.create_topics([NewTopic(f"{room.namespace}/more", 1)])
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        next(iter(made.values())).result()
    room.remove("maxTopicsPerNamespace")
    client.create_producer(f"persistent://{room.namespace}/more").close()


def test_a_consumer_may_hold_so_many_unacknowledged(client: pulsar.Client, room: Room) -> None:
    room.put("maxUnackedMessagesPerConsumer", 3)
    consumer = client.subscribe(room.topic, "s", ConsumerType.Shared)
    send(client, room.topic, numbers(6), batching_enabled=False)
    held = [consumer.receive(WAIT_MS) for _ in range(3)]
    assert nothing_comes(consumer)
    room.put_topic("maxUnackedMessagesOnConsumer", 4)
    held.append(consumer.receive(WAIT_MS))
    assert nothing_comes(consumer)
    for message in held:
        consumer.acknowledge(message)
    assert receive(consumer, 2) == numbers(2, 4)


def test_so_many_bytes_a_message_may_have(pulsar_broker: BrokerProcess, room: Room) -> None:
    """The Python client would send what is refused so again and again: this one says it once."""
    room.put_topic("maxMessageSize", 1000)
    with raw.Raw(pulsar_broker) as client:
        client.ask(raw.producer(room.topic))
        assert client.ask(raw.send(), raw.entry(bytes(900))).type == BaseCommand.SEND_RECEIPT
        answer = client.ask(raw.send(sequence_id=1), raw.entry(bytes(1100)))
        assert answer.send_error.error == ServerError.NotAllowedError
        assert "1100 bytes, 1000 may be" in answer.send_error.message
    assert room.http.post(f"{room.path}/maxMessageSize", json=1 << 40).status_code == 412


# -- how fast


def test_subscribing_again_and_again_is_refused(client: pulsar.Client, room: Room) -> None:
    room.put("subscribeRate", {"subscribeThrottlingRatePerConsumer": 1, "ratePeriodInSecond": 3600})
    consumer = client.subscribe(room.topic, "s", consumer_name="steady")
    consumer.close()
    # each consumer of a client has an id of its own: another client begins with the same ids
    again = pulsar.Client(client_url(client, room), logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    with refused("NotAllowed"):
        again.subscribe(room.topic, "s", consumer_name="steady")
    again.subscribe(room.topic, "s", consumer_name="another")
    again.close()


def client_url(client: pulsar.Client, room: Room) -> str:
    found: str = room.http.get(f"/lookup/v2/topic/persistent/{room.namespace}/t").json()["brokerUrl"]
    return found


@pytest.mark.parametrize("kind", [ConsumerType.Exclusive, ConsumerType.Shared, ConsumerType.KeyShared])
@pytest.mark.parametrize("policy", ["dispatchRate", "subscriptionDispatchRate"])
def test_no_more_is_sent_than_a_rate_allows(
    client: pulsar.Client, room: Room, policy: str, kind: ConsumerType
) -> None:
    """So slow a rate that the second portion never comes while the test runs; then it is lifted."""
    rate = {"dispatchThrottlingRateInMsg": 5, "dispatchThrottlingRateInByte": -1, "ratePeriodInSecond": 3600}
    room.put(policy, rate)
    consumer = client.subscribe(room.topic, "s", kind)
    send(client, room.topic, numbers(12), batching_enabled=False)
    first = receive(consumer, 5, acknowledge=False)
    assert nothing_comes(consumer)
    room.remove(policy)
    assert sorted(first + receive(consumer, 7)) == sorted(numbers(12))


def test_producers_are_read_as_slowly_as_they_may_send(client: pulsar.Client, room: Room) -> None:
    room.put("publishRate", {"publishThrottlingRateInMsg": 10, "publishThrottlingRateInByte": -1})
    consumer = client.subscribe(room.topic, "s")
    producer = client.create_producer(room.topic, batching_enabled=False)
    began = time.monotonic()
    for message in numbers(25):
        producer.send(message)
    # Ten go at once, fourteen at ten a second, and the last one's turn is waited for behind it.
    assert time.monotonic() - began >= 1.3
    assert receive(consumer, 25) == numbers(25)


def test_a_bucket_fills_with_time_and_what_was_overdrawn_is_owed() -> None:
    now = 0.0
    limit = RateLimit(Rate(10, 1000, 2), lambda: now)
    assert limit.budget() == (10, 1000)
    limit.spend(12, 10)
    assert limit.wait_s() == pytest.approx(0.6)  # three messages at five a second
    now = 0.6
    assert limit.wait_s() == 0
    limit.spend(1, 5000)
    assert limit.wait_s() == pytest.approx((1 + 5000 - 1000) / 500)
    now = 100.0
    assert limit.budget() == (10, 1000)


def test_a_relative_rate_is_that_many_more_than_are_published() -> None:
    now, came = 0.0, (1000, 50_000)
    limit = RateLimit(Rate(10, 100, 2, relative=True), lambda: now, lambda: came)
    assert limit.budget() == (10, 100)
    now, came = 1.0, (1050, 52_000)  # in half a period
    limit.spend(*limit.budget())
    assert limit.wait_s() == pytest.approx(2 / 110, rel=0.01)
    now = 1.5
    assert limit.budget() == (27, 1025)  # a quarter of 10 + 100 messages, and of 100 + 4000 bytes
    now = 2.5  # nothing came since
    limit.budget()
    now = 9.0
    assert limit.budget() == (10, 100)
    fixed = RateLimit(Rate(10, 100), lambda: now, lambda: came)
    came = (10_000, 10_000_000)
    now = 20.0
    assert fixed.budget() == (10, 100)


# -- how far behind


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("producer_request_hold", "ProducerBlockedQuotaExceededError"),
        ("producer_exception", "ProducerBlockedQuotaExceededException"),
    ],
)
def test_producers_wait_or_fail_while_the_backlog_is_too_large(
    client: pulsar.Client, room: Room, policy: str, error: str
) -> None:
    consumer = client.subscribe(room.topic, "slow")
    producer = client.create_producer(room.topic, batching_enabled=False)
    producer.send(bytes(2000))
    room.put("backlogQuota", {"limitSize": "1000", "policy": policy})  # Pulsar takes numbers as strings, too
    assert room.http.get(f"/admin/v2/namespaces/{room.namespace}/backlogQuotaMap").json() == {
        "destination_storage": {"limit": 1000, "limitSize": 1000, "limitTime": -1, "policy": policy}
    }
    with refused(error):
        client.create_producer(room.topic)
    until(lambda: not room.stats()["publishers"])  # those that are there are sent away, too
    assert receive(consumer, 1) == [bytes(2000)]
    until(lambda: room.backlog("slow") == 0)
    client.create_producer(room.topic).send(b"again")
    assert receive(consumer, 1) == [b"again"]


@pytest.mark.parametrize("kind", ["size", "age"])
def test_the_slowest_subscription_passes_over_what_is_too_much(
    client: pulsar.Client, room: Room, pulsar_broker: BrokerProcess, kind: str
) -> None:
    client.subscribe(room.topic, "slow").close()
    send(client, room.topic, [bytes(1000)] * 20, batching_enabled=False)
    kafka = f"{room.namespace}/t"
    group = KafkaConsumer(
        {"bootstrap.servers": pulsar_broker.address, "group.id": f"g-{room.namespace[-2:]}"}
    )
    group.commit(offsets=[TopicPartition(kafka, 0, 3)], asynchronous=False)
    until(lambda: len(room.stats()["subscriptions"]) == 2)
    if kind == "size":
        room.put_topic("backlogQuota", {"limitSize": 10_000, "policy": "consumer_backlog_eviction"})
        until(lambda: 0 < room.backlog("slow") < 10)
    else:
        quota = {"limitTime": 1, "policy": "consumer_backlog_eviction"}
        room.put_topic("backlogQuota", quota, backlogQuotaType="message_age")
        until(lambda: room.backlog("slow") == 0)
    assert group.committed([TopicPartition(kafka, 0)])[0].offset == 3
    group.close()
    assert room.http.delete(f"{room.path}/backlogQuota").status_code == 204
    left = room.backlog("slow")
    late = client.subscribe(room.topic, "slow")
    assert receive(late, left) == [bytes(1000)] * left
    assert nothing_comes(late)


# -- when, and how often it is kept


@pytest.mark.parametrize("whose", ["put", "put_topic"])
def test_delays_are_bounded_and_switched_off(
    pulsar_broker: BrokerProcess, client: pulsar.Client, room: Room, whose: str
) -> None:
    """A namespace's policy and a topic's do the same: longer delays are refused, or nothing waits at all."""
    put = getattr(room, whose)
    consumer = client.subscribe(room.topic, "s", ConsumerType.Shared)
    producer = client.create_producer(room.topic, batching_enabled=False)
    put("delayedDelivery", {"tickTime": 1, "active": True, "maxDeliveryDelayInMillis": 60_000})
    producer.send(b"waits", deliver_after=timedelta(seconds=50))
    with raw.Raw(pulsar_broker) as other:  # a stock client of C++ sends again and again what it is refused
        other.ask(raw.producer(room.topic))
        answer = other.ask(raw.send(), raw.entry(b"too long", deliver_at_time=1 + 60_001))
        assert answer.send_error.error == ServerError.NotAllowedError
        assert "60000 milliseconds" in answer.send_error.message
    until(lambda: room.stats()["subscriptions"]["s"]["msgDelayed"] == 1)
    assert nothing_comes(consumer)
    put("delayedDelivery", {"tickTime": 1, "active": False, "maxDeliveryDelayInMillis": 0})
    producer.send(b"would", deliver_after=timedelta(hours=9))
    assert sorted(receive(consumer, 2)) == [b"waits", b"would"]
    own = room.http.get(f"{room.path}/delayedDelivery")
    assert own.status_code == (200 if whose == "put_topic" else 204)
    applied = {"applied": "true"}
    assert room.http.get(f"{room.path}/delayedDelivery", params=applied).json()["active"] is False


def test_persistence_is_the_topics_before_it_is_the_namespaces(room: Room) -> None:
    persistence = {
        "bookkeeperEnsemble": 2,
        "bookkeeperWriteQuorum": 2,
        "bookkeeperAckQuorum": 1,
        "managedLedgerMaxMarkDeleteRate": 7.5,
    }
    room.put("persistence", persistence)
    room.put_topic("persistence", persistence | {"bookkeeperAckQuorum": 2})
    applied = room.http.get(f"{room.path}/persistence", params={"applied": "true"}).json()
    assert applied == persistence | {"bookkeeperAckQuorum": 2}
    assert room.http.delete(f"{room.path}/persistence").status_code == 204
    applied = room.http.get(f"{room.path}/persistence", params={"applied": "true"}).json()
    assert applied == persistence
    assert room.http.post(f"{room.path}/persistence", json={"bookkeeperEnsemble": 1}).status_code == 412
    fewer = persistence | {"bookkeeperAckQuorum": 3}
    assert room.http.post(f"{room.path}/persistence", json=fewer).status_code == 412


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["delete_when_no_subscriptions", "delete_when_subscriptions_caught_up"])
def test_what_nobody_uses_is_deleted_once_nothing_is_in_it(
    client: pulsar.Client, room: Room, mode: str
) -> None:
    other = f"persistent://{room.namespace}/other"
    client.create_producer(other).send(b"kept")  # which retention has not taken
    consumer = client.subscribe(room.topic, "s")
    producer = client.create_producer(room.topic)
    room.put(
        "inactiveTopicPolicies",
        {"inactiveTopicDeleteMode": mode, "maxInactiveDurationSeconds": 1, "deleteWhileInactive": True},
    )

    def is_there() -> bool:
        return room.http.get(f"{room.path}/stats").status_code == 200

    time.sleep(3)
    assert is_there(), "it has a producer and a consumer"
    producer.send(b"1")
    producer.close()
    consumer.close()
    time.sleep(3)
    assert room.backlog("s") == 1, "somebody will want it"
    assert room.http.post(f"{room.path}/subscription/s/skip_all").status_code == 204
    assert room.http.delete(f"{room.path}/truncate").status_code == 204
    if mode == "delete_when_no_subscriptions":
        time.sleep(3)
        assert is_there(), "it has a subscription"
        assert room.http.delete(f"{room.path}/subscription/s").status_code == 204
    until(lambda: not is_there())
    assert room.http.get(f"/admin/v2/persistent/{room.namespace}").json() == [other]


def test_what_may_be_said_of_topics_that_nobody_uses(room: Room) -> None:
    inactive = {
        "inactiveTopicDeleteMode": "delete_when_subscriptions_caught_up",
        "maxInactiveDurationSeconds": 600,
        "deleteWhileInactive": True,
    }
    room.put("inactiveTopicPolicies", inactive | {"maxInactiveDurationSeconds": 5})
    room.put_topic("inactiveTopicPolicies", inactive)
    wrong = inactive | {"inactiveTopicDeleteMode": "at_dawn"}
    assert (
        "delete_when_no_subscriptions"
        in room.http.post(f"{room.path}/inactiveTopicPolicies", json=wrong).json()["reason"]
    )


# -- what cannot be, and what is remembered

ONE_COPY = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}


@pytest.mark.parametrize(
    ("policy", "value", "status"),
    [
        ("maxProducersPerTopic", -1, 412),
        ("maxTopicsPerNamespace", "many", 400),
        ("publishRate", {"publishThrottlingRateInMsg": "fast"}, 412),
        ("dispatchRate", {"dispatchThrottlingRateInMsg": 1, "relativeToPublishRate": "yes"}, 412),
        ("subscriptionExpirationTime", -60, 412),
        ("backlogQuota", {"limitSize": 1, "policy": "panic"}, 412),
        ("backlogQuota", {"limitSize": "x", "policy": "producer_exception"}, 412),
        ("delayedDelivery", {"active": "yes"}, 412),
        ("persistence", {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 1}, 412),
        ("persistence", ONE_COPY | {"managedLedgerMaxMarkDeleteRate": "often"}, 412),
        ("persistence", ONE_COPY | {"managedLedgerMaxMarkDeleteRate": 10**400}, 412),
    ],
)
def test_what_cannot_be_is_refused(room: Room, policy: str, value: Any, status: int) -> None:
    before = room.http.get(f"/admin/v2/namespaces/{room.namespace}").json()
    answer = room.http.post(f"/admin/v2/namespaces/{room.namespace}/{policy}", json=value)
    assert answer.status_code == status, answer.text
    assert answer.json()["reason"]
    assert room.http.get(f"/admin/v2/namespaces/{room.namespace}").json() == before


def test_topics_refuse_it_too_and_a_quota_beyond_retention(room: Room) -> None:
    assert room.http.post(f"{room.path}/maxConsumers", json=-1).status_code == 412
    assert room.http.post(f"{room.path}/publishRate", json=[]).status_code == 412
    assert room.http.post(f"{room.path}/messageTTL", params={"messageTTL": "x"}).status_code == 400
    assert (
        room.http.post(f"/admin/v2/persistent/{room.namespace}/none/maxConsumers", json=1).status_code == 404
    )
    root = f"/admin/v2/namespaces/{room.namespace}"
    room.http.post(f"{root}/retention", json={"retentionTimeInMinutes": 10, "retentionSizeInMB": 1})
    over = room.http.post(f"{root}/backlogQuota", json={"limitSize": 1 << 30, "policy": "producer_exception"})
    assert over.status_code == 412
    assert room.http.post(f"{root}/backlogQuota?backlogQuotaType=x", json={}).status_code == 404


def test_what_older_pulsars_wrote_for_unset_is_no_limit() -> None:
    content = {
        "max_unacked_messages_per_consumer": -1,
        "max_producers_per_topic": 5,
        "topicDispatchRate": {"standalone": {"dispatchThrottlingRateInMsg": 7, "ratePeriodInSecond": 2}},
        "backlog_quota_map": {"destination_storage": {"limit": 9, "policy": "producer_exception"}},
    }
    found = decode_limits(content, NAMESPACE_KEYS)
    assert found == Limits(
        max_producers=5, dispatch_rate=Rate(7, 0, 2), size_quota=Quota(9, "producer_exception")
    )


def test_a_topics_policies_survive_a_crash_and_go_with_the_topic(tmp_path: Any) -> None:
    path = "/admin/v2/persistent/public/default/t"
    with serving(tmp_path) as process:
        with httpx.Client(base_url=f"http://{process.served['http'][0]}", timeout=30) as http:
            http.put(path)
            assert http.post(f"{path}/messageTTL", params={"messageTTL": "5"}).status_code == 204
            assert http.post(f"{path}/deduplicationEnabled", json=True).status_code == 204
        process.kill()
    with (
        serving(tmp_path) as process,
        httpx.Client(base_url=f"http://{process.served['http'][0]}", timeout=30) as http,
    ):
        assert http.get(f"{path}/messageTTL").json() == 5
        assert http.get(f"{path}/stats").json()["deduplicationStatus"] == "Enabled"
        http.delete(path)
        http.put(path)
        assert http.get(f"{path}/messageTTL").status_code == 204
        assert http.get(f"{path}/stats").json()["deduplicationStatus"] == "Disabled"


def test_a_groups_committed_offset_is_not_moved_by_the_age_of_messages(
    pulsar_broker: BrokerProcess, client: pulsar.Client, room: Room
) -> None:
    """Pulsar's TTL acts on subscriptions. A Kafka group that was away for long reads on where it was."""
    kafka = f"{room.namespace}/t"
    client.subscribe(room.topic, "pulsars").close()
    producer = KafkaProducer({"bootstrap.servers": pulsar_broker.address, "linger.ms": 0})
    for number in range(5):
        producer.produce(kafka, b"%d" % number)
        producer.flush()
    settings = {
        "bootstrap.servers": pulsar_broker.address,
        "group.id": f"away-{room.namespace[-2:]}",
        "auto.offset.reset": "error",
    }
    group = KafkaConsumer(settings)
    group.commit(offsets=[TopicPartition(kafka, 0, 2)], asynchronous=False)
    until(lambda: len(room.stats()["subscriptions"]) == 2)
    time.sleep(1.1)
    room.put("messageTTL", 1)
    until(lambda: room.backlog("pulsars") == 0)
    assert room.backlog(settings["group.id"]) == 3
    group.subscribe([kafka])
    seen = [group.poll(10) for _ in range(3)]
    assert [message.value() for message in seen if message is not None] == [b"2", b"3", b"4"]
    group.close()


def test_stats_tell_who_is_connected_and_how(client: pulsar.Client, room: Room) -> None:
    client.subscribe(room.topic, "s", consumer_name="reads")
    client.create_producer(room.topic, "writes", access_mode=pulsar.ProducerAccessMode.WaitForExclusive)
    stats = room.stats()
    (publisher,), (consumer,) = stats["publishers"], stats["subscriptions"]["s"]["consumers"]
    assert (publisher["producerName"], publisher["accessMode"]) == ("writes", "WaitForExclusive")
    assert consumer["consumerName"] == "reads"
    assert publisher["clientVersion"] == consumer["clientVersion"]
    assert publisher["clientVersion"].startswith("Pulsar-CPP-v")


def test_raw_bytes_have_an_empty_schema_version(pulsar_broker: BrokerProcess, room: Room) -> None:
    """As Pulsar answers: Java's client, whose consumers send to retry topics so, fails for ever where there is none."""
    ask = BaseCommand(type=BaseCommand.GET_OR_CREATE_SCHEMA)
    ask.getOrCreateSchema.request_id, ask.getOrCreateSchema.topic = 8, room.topic
    schema = ask.getOrCreateSchema.schema
    schema.name, schema.type, schema.schema_data = "Bytes", Schema.Type.Value("None"), b""
    with raw.Raw(pulsar_broker) as client:
        client.ask(raw.producer(room.topic))
        answer = client.ask(ask).getOrCreateSchemaResponse
        assert answer.HasField("schema_version")
        assert answer.schema_version == b""
        # Go's client then asks for the schema of that version, and takes a refusal for an error of its own.
        asked = BaseCommand(type=BaseCommand.GET_SCHEMA)
        asked.getSchema.topic, asked.getSchema.request_id = room.topic, 9
        asked.getSchema.schema_version = b""
        found = client.ask(asked).getSchemaResponse
        assert (found.schema.type, found.schema.schema_data) == (Schema.Type.Value("None"), b"")
        assert (found.schema_version, found.HasField("error_code")) == (b"", False)
        asked.getSchema.ClearField("schema_version")  # the latest, and there is none
        assert client.ask(asked).getSchemaResponse.error_code == ServerError.TopicNotFound
        schema.name, schema.type = "text", Schema.String
        assert client.ask(ask).getOrCreateSchemaResponse.schema_version == bytes(8)
