"""The example of a handler in a package of its own: pip installs it, the broker finds it, a stock client uses it."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.process import BrokerProcess
from tests.security.signing import SECURED, token

mqtt5 = pytest.importorskip("mqtt5", reason="'make install' brings it")
paho = pytest.importorskip("paho.mqtt.client", reason="'make install' brings it")

EXAMPLE = Path(__file__).parents[2] / "examples" / "mqtt"
MESSAGES = 20_000
HEADROOM_S = 60
MQTT = ("--set", "messaging.protocols=kafka,mqtt", "--set", "mqtt.listeners=mqtt://127.0.0.1:0")


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package, as pip puts it, where brokers that are started find it."""
    site = tmp_path_factory.mktemp("site")
    quiet = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    install = (sys.executable, "-m", "pip", "install", *quiet, "--target", str(site), str(EXAMPLE))
    subprocess.run(install, check=True)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(site), before)))
    yield site
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="module")
def broker(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = ("--set", "mqtt.max.packet.size=300000", "--set", "mqtt.untaken.timeout.ms=1000")
    with BrokerProcess(tmp_path_factory.mktemp("mqtt") / "data", *MQTT, *settings) as process:
        yield process


def where(broker: BrokerProcess) -> tuple[str, int]:
    host, _, port = broker.served["mqtt"][0].rpartition(":")
    return host, int(port)


class Client:
    """A stock client of MQTT 5, and what it heard."""

    def __init__(
        self, broker: BrokerProcess, client_id: str = "", *, user: str = "", password: str = ""
    ) -> None:
        self.messages: list[Any] = []
        self.codes: dict[str, list[int]] = {"connect": [], "disconnect": [], "publish": [], "subscribe": []}
        self._changed = threading.Condition()
        made = self.paho = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv5)
        made.on_connect = lambda client, data, flags, code, properties: self._heard("connect", code.value)
        made.on_disconnect = lambda client, data, flags, code, properties: self._heard(
            "disconnect", code.value
        )
        made.on_publish = lambda client, data, mid, code, properties: self._heard("publish", code.value)
        made.on_subscribe = lambda client, data, mid, codes, properties: self._heard(
            "subscribe", *(each.value for each in codes)
        )
        made.on_message = self._message
        if user or password:
            made.username_pw_set(user, password)
        made.max_inflight_messages_set(1000)
        made.reconnect_delay_set(100, 100)
        self._where = where(broker)

    def __enter__(self) -> Client:
        self.paho.connect(*self._where, keepalive=30)
        self.paho.loop_start()
        self.wait(lambda: self.codes["connect"])
        return self

    def __exit__(self, *what: object) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def _heard(self, what: str, *codes: int) -> None:
        with self._changed:
            self.codes[what] += codes
            self._changed.notify_all()

    def _message(self, client: object, data: object, message: Any) -> None:
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    def wait(self, for_what: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(for_what, HEADROOM_S), (self.codes, len(self.messages))

    def subscribe(self, pattern: str, qos: int = 1, **options: Any) -> int:
        before = len(self.codes["subscribe"])
        self.paho.subscribe(pattern, options=paho.SubscribeOptions(qos, **options))
        self.wait(lambda: len(self.codes["subscribe"]) > before)
        return self.codes["subscribe"][-1]


def consumed(broker: BrokerProcess, topic: str, count: int) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": broker.address, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[Any] = []
    until = time.monotonic() + HEADROOM_S
    while len(found) < count and time.monotonic() < until:
        found += consumer.consume(1000, timeout=1)
    consumer.close()
    return found


@pytest.mark.slow
def test_what_a_stock_client_publishes_kafkas_consumers_read(broker: BrokerProcess) -> None:
    with Client(broker, "sensor") as client:
        properties = paho.Properties(paho.PacketTypes.PUBLISH)
        properties.ContentType = "text/plain"
        properties.UserProperty = ("unit", "K")
        for number in range(MESSAGES):
            client.paho.publish("plant/hall-1/heat", f"value {number}", qos=1, properties=properties)
        client.wait(lambda: len(client.codes["publish"]) == MESSAGES)
        assert set(client.codes["publish"]) == {0}
    found = consumed(broker, "plant.hall-1.heat", MESSAGES)
    assert [each.value() for each in found] == [f"value {number}".encode() for number in range(MESSAGES)]
    assert [each.offset() for each in found] == list(range(MESSAGES))
    assert sorted(found[-1].headers()) == [("mqtt.content-type", b"text/plain"), ("unit", b"K")]


@pytest.mark.slow
@pytest.mark.parametrize("qos", [0, 1])
def test_what_kafkas_producers_send_a_stock_client_hears(broker: BrokerProcess, qos: int) -> None:
    topic = f"orders.of-{qos}"
    with Client(broker) as client:
        assert client.subscribe(f"orders/of-{qos}", qos) == qos
        producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 5})
        for number in range(MESSAGES):
            producer.produce(topic, f"order {number}", headers={"from": "kafka"} if number % 2 else None)
            producer.poll(0)
        assert producer.flush(HEADROOM_S) == 0
        client.wait(lambda: len(client.messages) >= MESSAGES)
        heard = client.messages
        assert [each.payload for each in heard] == [f"order {number}".encode() for number in range(MESSAGES)]
        assert {(each.topic, each.qos, each.retain) for each in heard} == {(f"orders/of-{qos}", qos, False)}
        assert heard[1].properties.UserProperty == [("from", "kafka")]


def test_wildcards_mean_topics_that_are_there_and_that_come(broker: BrokerProcess) -> None:
    with Client(broker, "writer") as writer, Client(broker, "reader") as reader:
        writer.paho.publish("house/a/light", "before", qos=1).wait_for_publish(HEADROOM_S)
        assert reader.subscribe("house/+/light") == 1
        assert reader.subscribe("house/attic/#", 0) == 0
        for topic in ("house/a/light", "house/b/light", "house/attic/x/y", "house/a/heat", "house/attic"):
            writer.paho.publish(topic, topic, qos=1).wait_for_publish(HEADROOM_S)
        reader.wait(lambda: len(reader.messages) == 4)
        expected = {"house/a/light": 1, "house/b/light": 1, "house/attic/x/y": 0, "house/attic": 0}
        assert {each.payload.decode(): each.qos for each in reader.messages} == expected
        reader.paho.unsubscribe("house/attic/#")
        reader.paho.unsubscribe("house/+/light")
        assert reader.subscribe("house/end") == 1
        writer.paho.publish("house/a/light", "unheard", qos=1).wait_for_publish(HEADROOM_S)
        writer.paho.publish("house/end", "end", qos=1).wait_for_publish(HEADROOM_S)
        reader.wait(lambda: len(reader.messages) == 5)
        assert reader.messages[-1].payload == b"end"


def test_what_is_not_served_is_refused_clearly(broker: BrokerProcess) -> None:
    with Client(broker) as client:
        assert client.subscribe("$share/group/a") == 0x9E
        assert client.subscribe("a", noLocal=True) == 0x83
        assert client.subscribe("a.b/c") == 0x8F
        assert client.subscribe("a", 2) == 1, "the most that is served"
        client.paho.publish("dotted.name", "x", qos=1)
        client.wait(lambda: client.codes["publish"] == [0x90])
    with Client(broker) as client, pytest.raises(ValueError, match="QoS"):
        client.paho.publish("a", "x", qos=7)
    for packet, code in (
        (mqtt5.PublishPacket("a", b"x", qos=mqtt5.QoS.EXACTLY_ONCE, packet_id=1), 0x9B),
        (mqtt5.PublishPacket("a", b"x", retain=True), 0x9A),
        (mqtt5.PublishPacket("dotted.name", b"x"), 0x90),
        (mqtt5.PublishPacket("a", b"x" * 400_000), 0x95),
        (mqtt5.ConnectPacket("again"), 0x82),
        (mqtt5.PingRespPacket(), 0x82),
    ):
        with raw(broker) as wire:
            wire.sendall(packet.write()[:200_000])
            told = hear(wire)
            assert isinstance(told, mqtt5.DisconnectPacket)
            assert told.reason_code == code
            with contextlib.suppress(ConnectionResetError):  # it has said more than was read
                assert wire.recv(1) == b""


def raw(broker: BrokerProcess, **connect: Any) -> socket.socket:
    wire = socket.create_connection(where(broker), timeout=HEADROOM_S)
    wire.sendall(mqtt5.ConnectPacket("raw", **connect).write())
    told = hear(wire)
    assert (told.reason_code, told.retain_available, told.max_qos) == (0, False, 1)
    return wire


def hear(wire: socket.socket) -> Any:
    data = b""
    while True:
        part = wire.recv(1 << 16)
        assert part, f"the broker hung up after {data!r}"
        data += part
        try:
            packet, size = mqtt5.read(memoryview(data))
        except IndexError:
            continue
        assert size == len(data)
        return packet


@pytest.mark.parametrize(
    "junk",
    [
        b"\x10\xff\xff\xff\xff\xff",
        b"\x10\xff\xff\xff\x7f",  # 256 MB, of a stranger
        b"\0\0",
        b"GET / HTTP/1.1\r\n\r\n",
        mqtt5.PublishPacket("a", b"x").write(),
        mqtt5.PingReqPacket().write(),
    ],
)
def test_what_is_no_connect_is_hung_up_on(broker: BrokerProcess, junk: bytes) -> None:
    with socket.create_connection(where(broker), timeout=HEADROOM_S) as wire:
        wire.sendall(junk)
        assert wire.recv(100) == b""
    with Client(broker) as client:
        assert client.codes["connect"] == [0]


def test_packets_cut_short_are_waited_for_and_then_forgotten(broker: BrokerProcess) -> None:
    whole = mqtt5.PublishPacket("cut", b"x" * 1000, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1).write()
    for at in (1, 2, 3, 10, len(whole) - 1):
        with raw(broker) as wire:
            wire.sendall(whole[:at])
            time.sleep(0.05)
            wire.sendall(whole[at:])
            assert hear(wire).packet_id == 1
            wire.sendall(whole[:at])
    with raw(broker) as wire:
        wire.sendall(b"\x32\x05\x00\x10aaa")  # its topic is longer than the packet
        assert hear(wire).reason_code == 0x81


def test_an_older_version_is_told_so(broker: BrokerProcess) -> None:
    old = paho.Client(paho.CallbackAPIVersion.VERSION2, "old", protocol=paho.MQTTv311)
    heard: list[Any] = []
    old.on_connect = lambda client, data, flags, code, properties: heard.append(code)
    old.connect(*where(broker))
    until = time.monotonic() + HEADROOM_S
    while not heard and time.monotonic() < until:
        old.loop(0.1)
    assert str(heard[0]) == "Unsupported protocol version"


def test_who_never_reads_is_let_go_of_and_holds_nobody_up(broker: BrokerProcess) -> None:
    with raw(broker) as deaf, Client(broker, "speaker") as speaker:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("loud")]).write())
        assert isinstance(hear(deaf), mqtt5.SubAckPacket)
        before = broker.resident_bytes
        for number in range(1, 601):
            speaker.paho.publish("loud", b"x" * 200_000, qos=1)
            if (
                number % 10 == 0
            ):  # what is on its way to the topic is in memory as well, and none of the deaf one's
                speaker.wait(lambda number=number: len(speaker.codes["publish"]) == number)  # type: ignore[misc]
        assert broker.resident_bytes - before < 60 << 20, "most of it stays in the topic"
        until = time.monotonic() + HEADROOM_S
        while "takes nothing of what it is sent" not in broker.log.read_text():
            assert time.monotonic() < until
            time.sleep(0.1)
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_will_is_published_unless_the_client_took_its_leave(broker: BrokerProcess) -> None:
    will = mqtt5.Will("wills", payload=b"farewell", user_properties=[("of", "raw")])
    with Client(broker) as heir:
        heir.subscribe("wills")
        with raw(broker, will=will) as wire:
            wire.sendall(mqtt5.DisconnectPacket().write())
            assert wire.recv(1) == b""
        assert not heir.messages
        with raw(broker, will=will):
            pass
        heir.wait(lambda: heir.messages)
        assert heir.messages[0].payload == b"farewell"
        assert heir.messages[0].properties.UserProperty == [("of", "raw")]


def test_a_client_that_comes_again_takes_its_own_place(broker: BrokerProcess) -> None:
    with raw(broker) as former, raw(broker) as latter:
        assert hear(former).reason_code == 0x8E
        latter.sendall(mqtt5.PingReqPacket().write())
        assert isinstance(hear(latter), mqtt5.PingRespPacket)


def test_a_silent_client_is_let_go_of(broker: BrokerProcess) -> None:
    with raw(broker, keep_alive=1) as wire:
        assert hear(wire).reason_code == 0x8D


@pytest.mark.slow
def test_what_came_before_the_end_is_stored_and_clients_are_told(installed: Path, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", *MQTT) as broker, raw(broker) as wire:
        count = 500
        packets = (
            mqtt5.PublishPacket("last", b"%d" % number, qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=number + 1)
            for number in range(count)
        )
        wire.sendall(b"".join(each.write() for each in packets))
        broker.end()
        said, heard = wire.makefile("rb").read(), []
        while said:
            packet, size = mqtt5.read(memoryview(said))
            heard.append(packet)
            said = said[size:]
        acked = [each.packet_id for each in heard if isinstance(each, mqtt5.PubAckPacket)]
        assert heard[-1].reason_code == 0x8B
        assert acked == list(range(1, len(acked) + 1))
    with BrokerProcess(tmp_path / "data", *MQTT) as again:
        found = consumed(again, "last", len(acked))
        assert [each.value() for each in found][: len(acked)] == [b"%d" % each for each in range(len(acked))]


_SECURED = (
    *SECURED,
    "messaging.protocols=mqtt,admin",
    "http.listeners=http://127.0.0.1:0",
    "mqtt.listeners=mqtt://127.0.0.1:0",
)


@pytest.mark.slow
def test_the_brokers_authentication_and_grants_count(installed: Path, tmp_path: Path) -> None:
    options = [word for each in _SECURED for word in ("--set", each)]
    with BrokerProcess(tmp_path / "data", *options, kafka=None) as broker:
        assert sorted(broker.served) == ["http", "mqtt"], "Kafka is only needed, and serves nobody"
        for password in ("", "nonsense"):
            with Client(broker, user="alice", password=password) as client:
                assert client.codes["connect"][0] == 0x86
        command = (Path(sys.executable).parent / "magnetar", "permission", "grant", "public/default")
        who = ("--role", "alice", "--actions", "produce", "--data", str(tmp_path / "data"))
        with Client(broker, user="root", password=token("root")) as root:
            assert root.subscribe("open") == 1
            root.paho.publish("open", "first", qos=1).wait_for_publish(HEADROOM_S)
            with Client(broker, user="alice", password=f"token:{token('alice')}") as alice:
                alice.paho.publish("open", "x", qos=1)
                alice.wait(lambda: alice.codes["publish"] == [0x87])
                assert alice.subscribe("open") == 0x87
                assert alice.subscribe("#") == 1, "of what it may see"
                subprocess.run((*command, *who), check=True, capture_output=True)
                alice.paho.publish("open", "granted", qos=1)
                alice.wait(lambda: alice.codes["publish"] == [0x87, 0])
                root.wait(lambda: len(root.messages) == 2)
                assert not alice.messages
