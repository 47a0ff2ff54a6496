"""A plug-in really serves: alone or beside Kafka, from a directory or as an installed package, on its own listeners."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.process import BrokerDidNotStart, BrokerProcess
from tests.security.certificates import Authority

PLUG_IN = Path(__file__).parent / "plug_in"


@pytest.fixture(params=["directory", "package"])
def brought(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, ...]:
    """The plug-in, and the options by which a broker finds it."""
    if request.param == "directory":
        return ("--set", f"protocol.handler.directory={PLUG_IN}")
    site = tmp_path / "site"
    (site / "echo_package-1.0.dist-info").mkdir(parents=True)
    shutil.copy(PLUG_IN / "echo.py", site / "echo_package.py")
    about = site / "echo_package-1.0.dist-info"
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: echo-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[magnetar.protocol_handlers]\necho = echo_package:EchoHandler\n")
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setenv("PYTHONPATH", path)
    return ()


def said(address: str, text: bytes, *, tls: ssl.SSLContext | None = None) -> bytes:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as wire:
        if tls is not None:
            wire = tls.wrap_socket(wire, server_hostname="localhost")
        wire.sendall(text)
        heard = b""
        while len(heard) < len(text):
            part = wire.recv(1 << 16)
            assert part, "the broker hung up"
            heard += part
        return heard


def test_a_plug_in_alone_serves(tmp_path: Path, brought: tuple[str, ...]) -> None:
    options = ("--set", "messaging.protocols=echo", "--set", "echo.listeners=echo://127.0.0.1:0")
    with BrokerProcess(tmp_path / "data", *brought, *options, kafka=None) as broker:
        assert list(broker.served) == ["echo"]
        assert said(broker.served["echo"][0], b"hello\n") == b"hello\n"
        told = json.loads((tmp_path / "data" / "broker.json").read_text())
        assert told["echo"] == [f"echo://{broker.served['echo'][0]}"]
        host, _, port = broker.served["echo"][0].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as wire:
            wire.sendall(b"x")
            assert wire.recv(1) == b"x"
            broker.end()
            assert wire.makefile("rb").read() == b"bye\n"


def test_it_serves_beside_kafka_and_each_its_own_clients(tmp_path: Path, brought: tuple[str, ...]) -> None:
    options = ("--set", "messaging.protocols=kafka,echo", "--set", "echo.listeners=echo://127.0.0.1:0")
    with BrokerProcess(tmp_path / "data", *brought, *options) as broker:
        assert said(broker.served["echo"][0], b"\0\0\0\1hello\n") == b"\0\0\0\1hello\n"
        producer = Producer({"bootstrap.servers": broker.address})
        producer.produce("t", b"there")
        assert producer.flush(60) == 0


@pytest.mark.slow
def test_its_settings_come_from_file_environment_and_flags(
    tmp_path: Path, brought: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("messagingProtocols=echo\necho.listeners=echo://127.0.0.1:0\necho.times=3\n")
    for environment, flag, times in ((None, None, 3), ("2", None, 2), ("2", "echo.number=4", 4)):
        if environment:
            monkeypatch.setenv("MAGNETAR_ECHO_TIMES", environment)
        options = ("--config", str(file), *brought, *(("--set", flag) if flag else ()))
        with BrokerProcess(tmp_path / "data", *options, kafka=None) as broker:
            host, _, port = broker.served["echo"][0].rpartition(":")
            with socket.create_connection((host, int(port)), timeout=30) as wire:
                wire.sendall(b"ab")
                wire.shutdown(socket.SHUT_WR)
                assert wire.makefile("rb").read() == b"ab" * times
            assert "ignored" not in broker.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            ("echo.listeners=echo://127.0.0.1:0", "echo.times=-1"),
            "Invalid value -1 for configuration echo.times",
        ),
        (("echo.listeners=nonsense",), "expected echo://HOST:PORT or echos://HOST:PORT"),
        (("echo.listener=echo://127.0.0.1:0",), "did you mean echo.listeners?"),
    ],
)
def test_a_wrong_value_of_its_own_ends_the_start(
    tmp_path: Path, brought: tuple[str, ...], options: tuple[str, ...], complaint: str
) -> None:
    given = [word for each in ("messaging.protocols=echo", *options) for word in ("--set", each)]
    with pytest.raises(BrokerDidNotStart) as why:
        BrokerProcess(tmp_path / "data", *brought, *given, kafka=None)
    assert complaint in why.value.complaint


def test_without_the_handler_its_settings_are_unknown(tmp_path: Path) -> None:
    with pytest.raises(BrokerDidNotStart, match=r"no setting is called echo\.times"):
        BrokerProcess(tmp_path / "data", "--set", "echo.times=2")


def test_its_listeners_speak_tls(tmp_path: Path, brought: tuple[str, ...]) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("localhost")
    texts = (
        "messaging.protocols=echo",
        "echo.listeners=echos://127.0.0.1:0",
        f"tls.certificate.file.path={certificate}",
        f"tls.key.file.path={key}",
    )
    options = [word for each in texts for word in ("--set", each)]
    context = ssl.create_default_context(cafile=str(authority.file))
    with BrokerProcess(tmp_path / "data", *brought, *options, kafka=None) as broker:
        assert said(broker.served["echo"][0], b"secret", tls=context) == b"secret"
