"""SCRAM and client certificates of ``magnetar context``, against a broker that asks for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest

from tests.cli.operator import Ran
from tests.cli.test_contexts import Shell
from tests.process import BrokerProcess
from tests.security.certificates import Authority
from tests.security.signing import SECRET_URL

PASSWORD = 'root\'s, "secret"=ü;'
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class Guarded(NamedTuple):
    """A broker with a listener for SCRAM over TLS, and one for certificates; root may do all."""

    scram: str
    certificates: str
    authority: Authority
    secret: Path


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    place = tmp_path_factory.mktemp("guarded")
    authority = Authority(place)
    certificate, key = authority.sign("localhost")
    texts = (
        "listeners=SCRAM://localhost:0,CERTS://localhost:0",
        "listener.security.protocol.map=SCRAM:SASL_SSL,CERTS:SSL",
        "inter.broker.listener.name=SCRAM",
        "listener.name.certs.ssl.client.auth=required",
        f"sasl.enabled.mechanisms=PLAIN,{','.join(MECHANISMS)}",
        "authentication.enabled=true",
        "authorization.enabled=true",
        "super.user.roles=root",
        f"token.secret.key={SECRET_URL}",
        "connection.failed.authentication.delay.ms=10",
        f"tls.certificate.file.path={certificate}",
        f"tls.key.file.path={key}",
        f"tls.trust.certs.file.path={authority.file}",
        "group.initial.rebalance.delay.ms=0",
    )
    options = [word for each in texts for word in ("--set", each)]
    with BrokerProcess(place / "data", *options, kafka=None) as broker:
        secret = place / "password"
        secret.write_text(PASSWORD + "\n")
        shell = Shell(place / "home")
        assert shell.run("user", "set", "root", "--data", broker.data, "--password-file", secret).status == 0
        yield Guarded(broker.addresses[0], broker.addresses[1], authority, secret)
        assert PASSWORD not in broker.log.read_text()


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "home")


def added(shell: Shell, *words: str | Path) -> None:
    ran = shell.run("context", "add", "here", *words)
    assert ran.status == 0, ran.err
    assert shell.file.stat().st_mode & 0o77 == 0
    assert PASSWORD not in shell.run("context", "show").out


def works(shell: Shell) -> None:
    """Use the context by the command line's own client and by librdkafka."""
    topic = f"context-{uuid4().hex}"
    assert shell.run("topic", "create", topic).status == 0
    assert topic in shell.run("topic", "list").out
    produced = shell.run("produce", topic, stdin="one\ntwo\n")
    assert produced.status == 0, produced.err
    consumed = shell.run("consume", topic, "-o", "beginning", "-e")
    assert consumed.out.splitlines() == ["one", "two"], consumed.err


def refused(ran: Ran) -> None:
    assert ran.status == 1
    assert ran.out == ""
    assert "  -> " in ran.err
    assert PASSWORD not in ran.err


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_context_logs_in_by_scram(guarded: Guarded, shell: Shell, mechanism: str) -> None:
    common = ("-b", guarded.scram, "--tls-ca", guarded.authority.file, "--sasl-mechanism", mechanism)
    added(shell, *common, "--user", "root", "--password-file", guarded.secret)
    works(shell)
    stored = json.loads(shell.file.read_text())["contexts"]["here"]["settings"]
    assert stored["sasl.mechanism"] == mechanism
    refused(shell.run("topic", "list", MAGNETAR_USER="root", MAGNETAR_PASSWORD="wrong"))


@pytest.mark.slow
def test_a_context_shows_a_certificate(guarded: Guarded, shell: Shell) -> None:
    certificate, key = guarded.authority.sign("root")
    common = ("-b", guarded.certificates, "--tls-ca", guarded.authority.file)
    added(shell, *common, "--tls-cert", certificate, "--tls-key", key)
    works(shell)


@pytest.mark.slow
def test_a_certificate_of_another_authority_is_refused(
    guarded: Guarded, shell: Shell, tmp_path: Path
) -> None:
    common = ("-b", guarded.certificates, "--tls-ca", guarded.authority.file)
    added(shell, *common)
    refused(shell.run("topic", "list"))
    certificate, key = Authority(tmp_path, "stranger").sign("root")
    added(shell, *common, "--tls-cert", certificate, "--tls-key", key)
    refused(shell.run("topic", "list"))
