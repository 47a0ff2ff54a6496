"""Operators' questions from another machine: over the admin REST, with rights, by the same commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer

from magnetar.admin import rights, topics
from magnetar.admin.client import Local, Remote
from magnetar.admin.cluster import ClusterAdmin
from magnetar.admin.errors import AdminError, Declined, Forbidden, Invalid, NotThere, Unreachable
from magnetar.admin.questions import QUESTIONS
from magnetar.admin.whereabouts import way_to_ask
from tests.process import BrokerProcess
from tests.security.certificates import Authority
from tests.security.signing import SECURED, token

COMMAND = str(Path(sys.executable).parent / "magnetar")
HTTP = ("--set", "http.listeners=http://127.0.0.1:0")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("remote") / "data", *HTTP) as process:
        producer = Producer({"bootstrap.servers": process.address})
        producer.produce("orders", b"first", key=b"k")
        assert producer.flush(60) == 0
        yield process


def url(broker: BrokerProcess) -> str:
    return f"http://{broker.served['http'][0]}"


def told(*words: str, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        (COMMAND, *words, "--json"), env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == ("nobody" in words), done.stderr  # 1 for what is not there
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("explain", "orders-0@0"),
        ("why", "orders-0"),
        ("why", "group", "nobody"),
        ("ledger", "list", "orders-0"),
        ("topic", "compact", "orders", "--status"),
        ("permission", "list", "public/default"),
    ],
)
def test_both_ways_give_the_same_answer(broker: BrokerProcess, words: tuple[str, ...]) -> None:
    def asked() -> list[dict[str, Any]]:
        ways = (
            told(*words, "--data", str(broker.data)),
            told(*words, "--admin", url(broker)),
            told(*words, MAGNETAR_ADMIN=url(broker)),
        )
        for each in ways:
            for changing in ("facts", "says"):  # how long ago something was
                each.pop(changing, None)
        return list(ways)

    here, there, named = asked()
    if not there == named == here:  # what moved a moment ago is idle from some moment on, once
        here, there, named = asked()
    assert there == named == here


def test_the_way_is_found_from_the_bootstrap_server(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert way_to_ask(None, None, broker.address) == Local(broker.data)
    monkeypatch.setattr("magnetar.admin.whereabouts._serves", lambda *asked: False)  # as on another machine
    assert way_to_ask(None, None, broker.address) == Remote(url(broker))
    with BrokerProcess(tmp_path / "data") as alone, pytest.raises(NotThere, match="serves no admin REST"):
        way_to_ask(None, None, alone.address)


def test_errors_are_the_same_over_http(broker: BrokerProcess) -> None:
    way = Remote(url(broker))
    with pytest.raises(NotThere, match="no offset 7"):
        way.ask("explain", topic="orders", partition=0, offset=7)
    with pytest.raises(NotThere, match="nowhere"):
        way.ask("ledgers", topic="nowhere", partition=0)
    with pytest.raises(Invalid, match="it takes topic"):
        way.ask("ledgers", topic="orders", partition=True)
    with pytest.raises(Declined, match="on the broker's machine alone"):
        way.ask("reserve-ledgers", manifest="/etc/passwd")
    with pytest.raises(Unreachable, match="no broker answers"):
        Remote("http://127.0.0.1:1").ask("why-group", group="g")
    for address in ("ftp://x", "http://", "http://h:port"):
        with pytest.raises(Invalid, match="no address"):
            Remote(address).ask("why-group", group="g")
    with pytest.raises(AdminError):
        Remote(f"http://{broker.address}").ask("why-group", group="g")  # Kafka's port


def test_what_is_no_question_is_told_so(broker: BrokerProcess) -> None:
    with httpx.Client(base_url=f"{url(broker)}/admin/magnetar/v1", timeout=60) as http:
        assert http.get(f"{url(broker)}/admin/magnetar/v1").json()["explain"] == {
            "topic": "str",
            "partition": "int",
            "offset": "int",
        }
        for path, body, status in (
            ("/explain", b"{}", 400),
            ("/explain", b"[]", 400),
            ("/explain", b"{" * 5000, 400),
            ("/explain", b'{"topic":"a b","partition":0,"offset":0}', 400),
            ("/explain", b'{"topic":"orders","partition":-1,"offset":0}', 404),
            ("/explain", b'{"topic":"orders","partition":0,"offset":99999999999999999999999}', 404),
            ("/nothing", b"{}", 404),
            ("/adopt-ledgers", b'{"manifest":"/x"}', 409),
        ):
            assert http.post(path, content=body).status_code == status, (path, body[:80])
        assert http.get("/explain").status_code == 405


def test_every_question_has_a_rule_or_is_for_this_machine_alone() -> None:
    assert QUESTIONS.keys() - rights.RULES.keys() == {
        "reserve-ledgers", "adopt-ledgers", "state", "knows-client", "inventory", "metrics", "stacks", "recent-log",
        "redact",
    }  # fmt: skip


@pytest.mark.slow
def test_rights_count_and_the_command_config_says_who_asks(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("localhost")
    texts = (
        *SECURED,
        "http.listeners=https://127.0.0.1:0",
        f"tls.certificate.file.path={certificate}",
        f"tls.key.file.path={key}",
    )
    options = [word for each in texts for word in ("--set", each)]
    with BrokerProcess(tmp_path / "data", *options) as broker:
        where = f"https://localhost:{broker.served['http'][0].rpartition(':')[2]}"
        configs = {}
        for role in ("root", "alice", "stranger"):
            configs[role] = tmp_path / f"{role}.properties"
            configs[role].write_text(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=u\n"
                f"sasl.password=token:{token(role)}\nssl.ca.location={authority.file}\n"
            )
        ask = ("--admin", where)
        told(
            "permission", "grant", "public/default", "--role", "alice", "--actions", "consume", *ask,
            MAGNETAR_COMMAND_CONFIG=str(configs["root"]),
        )  # fmt: skip
        producer = {"bootstrap.servers": broker.address, "security.protocol": "SASL_PLAINTEXT"}
        producer |= {
            "sasl.mechanism": "PLAIN",
            "sasl.username": "u",
            "sasl.password": f"token:{token('root')}",
        }
        made = Producer(producer)
        made.produce("orders", b"first")
        assert made.flush(60) == 0
        found = told("explain", "orders-0@0", *ask, MAGNETAR_COMMAND_CONFIG=str(configs["alice"]))
        assert found["offset"] == 0
        for role, words, status in (
            ("stranger", ("explain", "orders-0@0"), "explain needs consume on the topic"),
            ("stranger", ("why", "orders-0"), "why-partition needs produce or consume on the topic"),
            ("alice", ("permission", "list", "public/default"), "permissions needs tenant admin"),
            ("alice", ("topic", "compact", "orders"), "compact needs tenant admin"),
            ("stranger", ("why", "group", "g"), "why-group needs consume where the group is at home"),
        ):
            environment = os.environ | {"MAGNETAR_COMMAND_CONFIG": str(configs[role])}
            done = subprocess.run((COMMAND, *words, *ask), env=environment, capture_output=True, text=True)
            assert (done.returncode, status in done.stderr) == (1, True), (role, words, done.stderr)
        done = subprocess.run((COMMAND, "why", "orders-0", *ask), capture_output=True, text=True)
        assert done.returncode == 1  # it trusts no such authority
        assert "certificate" in done.stderr


def test_who_proves_nothing_learns_nothing(tmp_path: Path) -> None:
    options = [word for each in (*SECURED, HTTP[1]) for word in ("--set", each)]
    with BrokerProcess(tmp_path / "data", *options) as broker, pytest.raises(Forbidden, match="let you in"):
        Remote(url(broker)).ask("why-group", group="g")


@pytest.mark.slow
def test_every_http_port_tells_figures_health_and_readiness(tmp_path: Path) -> None:
    registry = ("--set", "schema.registry.listeners=http://127.0.0.1:0")
    with BrokerProcess(tmp_path / "data", *HTTP, *registry) as broker:
        for served in ("http", "schema-registry"):
            with httpx.Client(base_url=f"http://{broker.served[served][0]}", timeout=60) as http:
                assert (http.get("/health").status_code, http.get("/health").text) == (200, "ok")
                assert "magnetar_background_failures" in http.get("/metrics").text
                assert http.head("/metrics").status_code == 200
                while (ready := http.get("/ready")).status_code != 200:
                    assert "partitions of groups are being loaded" in ready.text
        with httpx.Client(base_url=f"http://{broker.served['schema-registry'][0]}", timeout=60) as http:
            assert http.get("/subjects").json() == []
    secured = [word for each in (*SECURED, HTTP[1], registry[1]) for word in ("--set", each)]
    with BrokerProcess(tmp_path / "secured", *secured) as broker:
        for served in ("http", "schema-registry"):
            with httpx.Client(base_url=f"http://{broker.served[served][0]}", timeout=60) as http:
                assert [http.get(path).status_code for path in ("/health", "/metrics")] == [200, 401]
                known = {"authorization": f"Bearer {token('root')}"}
                assert http.get("/metrics", headers=known).status_code == 200


def test_a_broker_without_kafka_answers_what_it_knows(tmp_path: Path) -> None:
    plug_in = Path(__file__).parents[1] / "broker" / "plug_in"
    texts = (f"protocol.handler.directory={plug_in}", "messaging.protocols=echo", HTTP[1])
    options = [word for each in texts for word in ("--set", each)]
    with BrokerProcess(tmp_path / "data", *options, kafka=None) as broker:
        way = Remote(url(broker))
        assert way.ask("permissions", target="public/default")
        with pytest.raises(Declined, match="does not speak Kafka's protocol"):
            way.ask("why-group", group="g")
        with httpx.Client(base_url=url(broker), timeout=60) as http:
            assert http.get("/ready").text == "ok"
            assert http.put("/admin/v2/persistent/public/default/t").status_code == 204
            assert http.get("/admin/v2/persistent/public/default").json() == ["persistent://public/default/t"]


@pytest.mark.parametrize("until", [1, 9])
def test_a_topic_that_nobody_leads_yet_is_described(
    broker: BrokerProcess, until: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of a cluster is, right after it was made."""
    asked, found = 0, topics._metadata

    def leaderless(cluster: ClusterAdmin, name: str) -> Any:
        nonlocal asked
        asked += 1
        topic = found(cluster, name)
        for each in topic.partitions:
            each.leader_id = -1 if asked <= until else each.leader_id
        return topic

    monkeypatch.setattr(topics, "_metadata", leaderless)
    with ClusterAdmin(broker.address) as cluster:
        detail = topics.describe_topic(cluster, "orders")
    assert detail.partitions[0].next == 1
    assert (detail.flush == "unknown", detail.partitions[0].leader) == (
        (False, 0) if until == 1 else (True, -1)
    )
