"""Contexts and the options of a connection, against a broker that asks for TLS and a login."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from magnetar.admin.credentials import layered
from tests.cli.operator import Operator, Ran
from tests.process import BrokerProcess
from tests.security.certificates import Authority
from tests.security.signing import SECURED, token


class Secured(NamedTuple):
    """A broker with SASL_SSL and https, and the certificate of who signed for it."""

    bootstrap: str
    http: str
    ca: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    place = tmp_path_factory.mktemp("secured")
    authority = Authority(place)
    certificate, key = authority.sign("localhost")
    texts = (
        *(each for each in SECURED if not each.startswith("listeners=")),
        "listeners=SASL_SSL://localhost:0",
        "http.listeners=https://localhost:0",
        f"tls.certificate.file.path={certificate}",
        f"tls.key.file.path={key}",
        "group.initial.rebalance.delay.ms=0",
    )
    options = [word for each in texts for word in ("--set", each)]
    with BrokerProcess(place / "data", *options, kafka=None) as broker:
        http = broker.served["http"][0].rpartition(":")[2]
        yield Secured(broker.served["kafka"][0], f"https://localhost:{http}", authority.file)


class Shell(Operator):
    """Somebody whose contexts are in a directory of their own."""

    def __init__(self, home: Path) -> None:
        super().__init__("")
        self._environment = {
            name: text for name, text in self._environment.items() if not name.startswith("MAGNETAR_")
        }
        self._environment["XDG_CONFIG_HOME"] = str(home)
        self.file = home / "magnetar" / "contexts.json"

    def run(self, *arguments: str | Path, stdin: str = "", **variables: str) -> Ran:
        return super().run(*arguments, stdin=stdin, **variables)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path / "config")


def add(shell: Shell, secured: Secured, name: str, role: str, *more: str) -> Ran:
    return shell.run(
        "context", "add", name, "-b", secured.bootstrap, "--http-url", secured.http, "--token-file", "-",
        "--tls-ca", secured.ca, *more, stdin=f"{token(role)}\n",
    )  # fmt: skip


@pytest.mark.slow
class TestAgainstASecuredBroker:
    def test_a_context_says_all(self, shell: Shell, secured: Secured) -> None:
        made = add(shell, secured, "prod", "root")
        assert made.status == 0, made.err
        assert token("root") not in made.out
        assert oct(shell.file.stat().st_mode & 0o777) == "0o600"
        shell.ok("topic", "create", "orders")
        shell.ok("produce", "orders", stdin="tea\n")
        assert shell.ok("consume", "orders", "-e") == "tea\n"
        assert shell.run("permission", "list", "public/default", "--json").status == 0
        assert shell.run("why", "orders-0", "--json").value["about"] == "orders-0"
        assert shell.run("topic", "list", "--context", "nosuch").status == 1

    def test_options_and_variables_say_it_too(self, shell: Shell, secured: Secured, tmp_path: Path) -> None:
        refused = shell.run("topic", "list", "-b", secured.bootstrap)
        assert refused.status == 1
        file = tmp_path / "token"
        file.write_text(token("root"))
        options = ("--bootstrap-servers", secured.bootstrap, "--token-file", file, "--tls-ca", secured.ca)
        shell.ok("topic", "list", *options)
        shell.ok("produce", "from-options", *options, stdin="tea\n")
        shell.ok("permission", "list", "public/default", "--http-url", secured.http, *options)
        named = {
            "MAGNETAR_BOOTSTRAP_SERVER": secured.bootstrap,
            "MAGNETAR_TOKEN": token("root"),
            "MAGNETAR_TLS_CA": str(secured.ca),
        }
        assert shell.run("topic", "list", **named).status == 0
        assert shell.run("consume", "from-options", "-e", **named).out == "tea\n"

    def test_which_goes_first(self, shell: Shell, secured: Secured, tmp_path: Path) -> None:
        add(shell, secured, "root", "root")
        add(shell, secured, "stranger", "stranger", "--use")
        made = ("topic", "create", "mine")
        assert shell.run(*made).status == 1, "the stranger is in use, and may not"
        assert shell.run(*made, MAGNETAR_CONTEXT="root").status == 0
        assert (
            shell.run("topic", "delete", "mine", "--context", "root", MAGNETAR_CONTEXT="stranger").status == 0
        )
        assert shell.run(*made, MAGNETAR_TOKEN=token("root")).status == 0, (
            "a variable goes before the context"
        )
        again = ("topic", "create", "mine2")
        assert shell.run(*again, "--token", token("root"), MAGNETAR_TOKEN=token("stranger")).status == 0
        config = tmp_path / "root.properties"
        config.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.username=public\n"
            f"sasl.password=token:{token('root')}\nssl.ca.location={secured.ca}\n"
        )
        assert shell.run("topic", "create", "mine3", MAGNETAR_COMMAND_CONFIG=str(config)).status == 0
        done = shell.run("topic", "list", "-b", "127.0.0.1:1")
        assert "127.0.0.1:1" in done.err


class TestTheFile:
    def test_from_add_to_remove(self, shell: Shell) -> None:
        assert shell.ok("context", "list") == "no contexts\n"
        shell.ok(
            "context", "add", "a", "-b", "a:9092", "--user", "me", "--password-file", "-", stdin="s3cret\n"
        )
        shell.ok("context", "add", "b", "-b", "b:9092")
        rows = shell.run("context", "list", "--json").value
        assert [(row["name"], row["bootstrap_servers"], row["current"]) for row in rows] == [
            ("a", "a:9092", True), ("b", "b:9092", False),
        ]  # fmt: skip
        shell.ok("context", "use", "b")
        assert shell.run("context", "show", "--json").value["name"] == "b"
        shown = shell.ok("context", "show", "a") + shell.ok("context", "show", "a", "--json")
        assert "s3cret" not in shown
        assert "me" in shown
        assert "s3cret" in shell.file.read_text()
        shell.ok("context", "remove", "b")
        assert "no context is in use" in shell.run("context", "show").err
        assert [row["name"] for row in shell.run("context", "list", "--json").value] == ["a"]

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
    def test_one_that_others_may_open_is_refused(self, shell: Shell, mode: int) -> None:
        shell.ok("context", "add", "a", "-b", "127.0.0.1:1")
        shell.file.chmod(mode)
        for words in (("context", "list"), ("topic", "list"), ("context", "add", "c")):
            done = shell.run(*words)
            assert (done.status, "by others" in done.err, "chmod 600" in done.err) == (2, True, True)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
    def test_one_of_another_user_is_refused(self, shell: Shell) -> None:
        shell.ok("context", "add", "a", "-b", "127.0.0.1:1")
        os.chown(shell.file, 12345, 12345)
        assert "belongs to another user" in shell.run("topic", "list").err

    def test_what_is_no_file_of_contexts(self, shell: Shell) -> None:
        shell.file.parent.mkdir(parents=True)
        os.mkfifo(shell.file, 0o600)
        assert "is no file" in shell.run("topic", "list").err
        for text in ("{", "[]", '{"contexts": 3}', '{"contexts": {"a": 3}}', "[" * 100_000, "\0"):
            shell.file.unlink()
            shell.file.touch(0o600)
            shell.file.write_text(text)
            done = shell.run("topic", "list")
            assert (done.status, "has no contexts" in done.err) == (2, True), text[:20]

    def test_names_do_not_move_a_terminal(self, shell: Shell) -> None:
        assert shell.run("context", "add", "\x1b[31mred", "-b", "a:1").status == 2
        shell.file.parent.mkdir(parents=True)
        shell.file.touch(0o600)
        shell.file.write_text(json.dumps({"contexts": {"\x1b[31mred": {"http_url": "\x1b]0;x\x07"}}}))
        for words in (("list",), ("list", "--json"), ("show", "\x1b[31mred")):
            assert "\x1b" not in shell.ok("context", *words)

    def test_half_a_login_is_refused(self, shell: Shell) -> None:
        assert "user and a password" in shell.run("context", "add", "a", "--user", "me").err
        both = shell.run("topic", "list", "--user", "me", "--password", "x", "--token", "y")
        assert "Give one of them" in both.err
        assert shell.run("context", "use", "nosuch").status == 1


def test_login_and_tls_are_each_taken_as_a_whole() -> None:
    below = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "a",
        "sasl.password": "b", "ssl.ca.location": "ca", "ssl.key.location": "key",
    }  # fmt: skip
    above = {"sasl.mechanism": "PLAIN", "sasl.username": "c", "sasl.password": "d"}
    assert layered(below, above) == {
        "security.protocol": "SASL_SSL", "ssl.ca.location": "ca", "ssl.key.location": "key", **above,
    }  # fmt: skip
    assert layered(below, {"ssl.ca.location": "x"})["sasl.username"] == "a"
    assert "ssl.key.location" not in layered(below, {"ssl.ca.location": "x"})
    assert layered({}, above)["security.protocol"] == "SASL_PLAINTEXT"
    assert layered(below, {}) == below


@pytest.mark.parametrize("words", [(), ("topic",), ("context",), ("ledger",)])
def test_lists_of_commands_are_not_cut(shell: Shell, words: tuple[str, ...]) -> None:
    told = shell.ok(*words, "--help")
    assert "..." not in told.replace("[ARGS]...", "")


def test_seek_has_the_name_that_kafka_users_know(shell: Shell) -> None:
    for name in ("seek", "reset-offsets"):
        assert "where to?" in shell.run("group", name, "g").err
    assert "reset-offsets" in shell.ok("group", "--help")
