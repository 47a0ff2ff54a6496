"""What the console changes, by forms of a real broker that stock clients use."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.console.conftest import browser
from tests.console.forms import done, opened, rows, send, text_of, unique
from tests.console.test_pages import make, produce
from tests.process import BrokerProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def http(changing: BrokerProcess) -> Iterator[httpx.Client]:
    with browser(changing) as client:
        yield client


@pytest.fixture
def topic(changing: BrokerProcess) -> str:
    name = unique("changed")
    make(changing, name, partitions=2)
    produce(changing, name, *(b"%d" % each for each in range(10)))
    return name


def committed(house: BrokerProcess, group: str, topic: str, partition: int = 0) -> int:
    consumer = Consumer({"bootstrap.servers": house.address, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, partition)], 60)
    consumer.close()
    return int(found.offset)


def commit(house: BrokerProcess, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": house.address, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def first_of(house: BrokerProcess, topic: str, partition: int = 0) -> bytes:
    consumer = Consumer(
        {"bootstrap.servers": house.address, "group.id": "x", "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = consumer.poll(60)
    assert found is not None
    assert found.error() is None
    value = found.value()
    consumer.close()
    assert value is not None
    return value


def test_a_group_is_reset_with_a_preview(changing: BrokerProcess, http: httpx.Client, topic: str) -> None:
    group = unique("moved")
    commit(changing, group, topic, 7)
    form = opened(http, "reset-group", group=group)
    assert form.buttons == ["preview"]
    answer = send(http, form, "preview", to="earliest")
    assert "7 records would be read again, 0 skipped, in 1 partitions." in text_of(answer)
    assert rows(answer)[0][:5] == [f"{topic}-0", "7", "0", "read again", "7"]
    assert rows(answer)[0][5].endswith(" s"), "of how long they are"
    assert committed(changing, group, topic) == 7, "a preview changes nothing"
    assert "kafka-consumer-groups.sh" in answer.text
    (line,) = [each for each in text_of(answer).split("magnetar ") if each.startswith("group reset-offsets")]
    assert line.startswith(f"group reset-offsets {group} --to earliest")
    told = done(http, "reset-group", {"group": group}, to="earliest")
    assert "7 records will be read again" in told
    assert committed(changing, group, topic) == 0
    for fields, offset in (
        ({"to": "shift", "offset": "1"}, 1),
        ({"to": "offset", "offset": "4", "topic": topic, "partition": "0"}, 4),
        ({"to": "latest"}, 10),
        ({"to": "time", "time": "2001-01-01T00:00:00"}, 0),
    ):
        done(http, "reset-group", {"group": group}, **fields)
        assert committed(changing, group, topic) == offset, fields
    done(http, "delete-group", {"group": group}, confirm=group)
    assert committed(changing, group, topic) < 0


def test_a_group_with_members_stays_and_the_page_says_what_to_do(
    changing: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    group = unique("busy")
    consumer = Consumer(
        {"bootstrap.servers": changing.address, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    assert consumer.poll(60) is not None
    consumer.commit(asynchronous=False)
    before = committed(changing, group, topic)
    answer = send(http, opened(http, "reset-group", group=group), to="latest")
    assert answer.status_code == 409
    assert "has members" in text_of(answer)
    assert "Stop its consumers first" in text_of(answer)
    assert committed(changing, group, topic) == before
    consumer.close()


def test_a_record_is_produced_by_schema(changing: BrokerProcess, http: httpx.Client, topic: str) -> None:
    registry = SchemaRegistryClient({"url": f"http://{changing.served['schema-registry'][0]}"})
    definition = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    from confluent_kafka.schema_registry import Schema

    registry.register_schema(f"{topic}-value", Schema(json.dumps(definition), "AVRO"))
    form = opened(http, "produce", topic=topic)
    assert form.fields["schema"] == f"subject:{topic}-value", "the newest schema is chosen"
    answer = send(http, form, key="k", no_key=None, value='{"n": "x"}', partition="1", headers="a=1\nb=2")
    assert answer.status_code == 400
    assert "does not fit schema" in text_of(answer)
    assert '{"n": "x"}' in text_of(answer), "what was filled in stays"
    told = done(
        http,
        "produce",
        {"topic": topic},
        key="k",
        no_key=None,
        value='{"n": 7}',
        partition="1",
        headers="a=1",
    )
    assert f"{topic}-1@0" in told
    value = first_of(changing, topic, 1)
    read = AvroDeserializer(registry)(value, SerializationContext(topic, MessageField.VALUE))
    assert read == {"n": 7}


def test_a_record_without_a_schema_keeps_its_bytes(changing: BrokerProcess, http: httpx.Client) -> None:
    name = unique("plain")
    make(changing, name)
    done(http, "produce", {"topic": name}, value="zwei\r\nZeilen \u202e", schema="")
    assert first_of(changing, name) == "zwei\nZeilen \u202e".encode()
    done(http, "produce", {"topic": name}, key="gone", no_key=None, no_value="yes", schema="")
    answer = http.get("/console/record.json", params={"topic": name, "partition": "0", "offset": "1"})
    assert answer.json()["record"]["value"]["format"] == "null", answer.text


def test_keys_choose_the_partition_that_kafkas_producers_choose(
    changing: BrokerProcess, http: httpx.Client
) -> None:
    name = unique("keyed")
    make(changing, name, partitions=7)
    producer = Producer({"bootstrap.servers": changing.address, "partitioner": "murmur2"})
    for key in ("a", "bc", "def", "ghij"):
        told = done(http, "produce", {"topic": name}, key=key, no_key=None, value="x", schema="")
        found: list[int] = []
        producer.produce(name, b"x", key, on_delivery=lambda _, it, to=found: to.append(it.partition()))
        producer.flush(60)
        assert f"{name}-{found[0]}@" in told


def test_dead_letters_are_sent_back_and_dropped(
    changing: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    letters = f"{topic}-sub-DLQ"
    make(changing, letters)
    producer = Producer({"bootstrap.servers": changing.address})
    for number in range(3):
        headers = [("REAL_TOPIC", f"persistent://public/default/{topic}".encode()), ("n", b"%d" % number)]
        producer.produce(letters, f"letter {number}", f"key {number}", headers=headers)
    producer.flush(60)
    about = {"topic": letters, "partition": "0", "offset": "1"}
    form = opened(http, "send-again", **about)
    assert form.fields["to"] == f"persistent://public/default/{topic}", "where it comes from is filled in"
    answer = send(http, form, drop="yes")
    assert "begins with offset 2 now" in text_of(answer)
    page = http.get("/console/records.json", params={"topic": topic, "key": "key 1"}).json()
    (row,) = page["records"]
    assert row["value"]["text"] == "letter 1"
    assert [each["key"] for each in row["headers"]] == ["REAL_TOPIC", "n"]
    left = http.get("/console/records.json", params={"topic": letters}).json()["records"]
    assert [each["offset"] for each in left] == [2]
    about["offset"] = "2"
    preview = send(http, opened(http, "drop-records", **about), "preview")
    assert f"1 records of {letters}-0 would be deleted: offsets 2 to 2" in text_of(preview)
    done(http, "drop-records", about)
    assert http.get("/console/records.json", params={"topic": letters}).json()["records"] == []


def test_topics_are_made_configured_compacted_and_deleted(
    changing: BrokerProcess, http: httpx.Client
) -> None:
    name = unique("made")
    done(
        http,
        "create-topic",
        {},
        name=name,
        partitions="3",
        configs="retention.ms=60000\ncleanup.policy=compact",
    )
    admin = AdminClient({"bootstrap.servers": changing.address})
    assert len(admin.list_topics(name, 60).topics[name].partitions) == 3
    again = send(http, opened(http, "create-topic"), name=name)
    assert again.status_code == 409
    assert "exists already" in text_of(again)
    about = {"topic": name}
    preview = send(
        http, opened(http, "configure-topic", **about), "preview", config="retention.ms", value="x"
    )
    assert preview.status_code == 409
    preview = send(
        http, opened(http, "configure-topic", **about), "preview", config="retention.ms", value="7000"
    )
    assert "would go from 60000 to 7000" in text_of(preview)
    done(http, "configure-topic", about, config="retention.ms", value="7000")
    resource = ConfigResource(ResourceType.TOPIC, name)
    (found,) = admin.describe_configs([resource]).values()
    assert found.result(60)["retention.ms"].value == "7000"
    done(http, "compact-topic", about)
    wrong = send(http, opened(http, "delete-topic", **about), confirm=f"{name}x")
    assert wrong.status_code == 400
    assert name in admin.list_topics(timeout=60).topics, "what was typed is another name"
    done(http, "delete-topic", about, confirm=name)
    assert name not in admin.list_topics(timeout=60).topics
    gone = http.get("/console/act/compact-topic", params=about)
    assert gone.status_code == 200
    late = send(http, opened(http, "compact-topic", **about))
    assert late.status_code == 404
    assert "does not exist" in text_of(late)


def test_subscriptions_are_moved_by_one_to_places_and_deleted(
    changing: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    root = f"/admin/v2/persistent/public/default/{topic}"
    assert http.put(f"{root}/subscription/sub", json={"ledgerId": -1, "entryId": -1}).status_code == 204
    about = {"topic": topic, "subscription": "sub"}

    def place(partition: int = 0) -> int | None:
        facts = http.get("/console/subscription.json", params=about).json()
        offset: int | None = facts["rows"][partition]["offset"]
        return offset

    preview = send(http, opened(http, "reset-subscription", **about), "preview", to="latest")
    assert "10 skipped" in text_of(preview)
    assert place() == 0
    done(http, "reset-subscription", about, to="latest")
    assert place() is None
    preview = send(http, opened(http, "reset-subscription", **about), "preview", to="earliest")
    assert "10 records would be read again" in text_of(preview)
    done(http, "reset-subscription", about, to="time", time="2001-01-01T00:00:00Z")
    assert place() == 0
    told = done(http, "skip-message", about, partition="0")
    assert "are skipped" in told
    assert (place() or 10) > 0
    done(http, "reset-subscription", about, to="offset", offset="0", partition="0")
    assert place() == 0
    done(http, "delete-subscription", about, confirm="sub")
    assert http.get(f"{root}/subscriptions").json() == []


def test_an_open_transaction_is_aborted(changing: BrokerProcess, http: httpx.Client, topic: str) -> None:
    name = unique("txn")
    producer = Producer({"bootstrap.servers": changing.address, "transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    producer.flush(60)
    preview = send(http, opened(http, "abort-transaction"), "preview", transaction=name)
    assert f"Ongoing in {topic}-1" in text_of(preview)
    done(http, "abort-transaction", {}, transaction=name)
    again = send(http, opened(http, "abort-transaction"), transaction=name)
    assert again.status_code == 409
    assert "no transaction open" in text_of(again)


def test_commands_beside_a_form_are_ones_that_our_command_line_takes(
    changing: BrokerProcess, http: httpx.Client, topic: str
) -> None:
    import html
    import re
    import shlex

    import click
    from typer.main import get_command

    from magnetar.cli.app import app

    group = unique("shown")
    commit(changing, group, topic, 3)
    about = {"topic": topic, "partition": "0", "offset": "1"}
    forms = (
        ("produce", about, {"partition": "1"}),
        ("send-again", about, {"to": topic}),
        ("drop-records", about, {}),
        ("reset-group", {"group": group}, {"to": "shift", "offset": "-1"}),
        ("delete-group", {"group": group}, {}),
        ("create-topic", {}, {"name": "x", "configs": "retention.ms=5"}),
        ("configure-topic", about, {"config": "retention.ms", "value": "5"}),
        ("compact-topic", about, {}),
        ("delete-topic", about, {}),
        ("grant", {}, {"role": "r", "target": "public/default"}),
        ("revoke", {}, {"role": "r", "target": "public/default"}),
        ("abort-transaction", {}, {"transaction": "t"}),
    )
    for action, query, fields in forms:
        page = send(http, opened(http, action, **query), confirm="another", **fields)
        lines = [html.unescape(each) for each in re.findall(r"<code>(magnetar .*)</code>", page.text)]
        assert lines, action
        for line in "|".join(lines).split("|"):
            command: click.Command = get_command(app)
            words, above = shlex.split(line)[1:], None
            name: str | None = "magnetar"
            while isinstance(command, click.Group):
                above = command.make_context(name, words, parent=above)
                name, found, words = command.resolve_command(above, [*above._protected_args, *above.args])
                assert found is not None
                command = found
            command.make_context(name, words, parent=above)  # raises for what it does not take


def test_pages_link_to_what_can_be_done(changing: BrokerProcess, http: httpx.Client, topic: str) -> None:
    group = unique("linked")
    commit(changing, group, topic, 3)
    for page, query, actions in (
        ("topics", {}, {"create-topic"}),
        ("topic", {"topic": topic}, {"produce", "compact-topic", "delete-topic"}),
        ("configuration", {"topic": topic}, {"configure-topic"}),
        ("records", {"topic": topic}, {"produce"}),
        ("record", {"topic": topic, "partition": "0", "offset": "1"}, {"send-again", "drop-records"}),
        ("group", {"group": group}, {"reset-group", "delete-group"}),
        ("permissions", {}, {"grant", "revoke"}),
    ):
        text = http.get(f"/console/{page}", params=query).text
        found = {each.partition("?")[0].partition('"')[0] for each in text.split('href="/console/act/')[1:]}
        assert found == actions, page


def test_audit_names_the_console(changing: BrokerProcess, http: httpx.Client) -> None:
    name = unique("audited")
    done(http, "create-topic", {}, name=name)
    done(http, "compact-topic", {"topic": name})
    acts = http.get("/console/overview.json").json()["acts"]
    mine = [each for each in acts if name in each["name"]]
    commit(changing, f"{name}-group", name, 0)
    for _ in range(2):
        done(http, "reset-group", {"group": f"{name}-group"}, to="latest")
    acts = http.get("/console/overview.json").json()["acts"]
    resets = [each for each in acts if each["name"] == f"{name}-group" and each["protocol"] == "console"]
    assert len(resets) == 2, "each that a person asks for, however soon"
    assert {each["protocol"] for each in mine} == {"console"}, mine
