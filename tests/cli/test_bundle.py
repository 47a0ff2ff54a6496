"""``magnetar bundle``: with secrets in all places that can have some, and of brokers that are down or do not answer."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer

from magnetar.admin.client import ask, ask_within
from magnetar.admin.errors import AdminError, Declined, Silent
from magnetar.admin.plain import plain
from magnetar.auth import redaction
from magnetar.auth.redaction import CUT, redacted, spellings, without
from magnetar.doctor import bundle, bundle_archive
from magnetar.doctor.bundle_cleaning import Cleaning
from magnetar.doctor.bundle_layout import layout
from magnetar.doctor.bundle_names import HiddenNames
from magnetar.doctor.bundle_process import last_lines
from magnetar.settings.settings import Settings
from tests.cli.operator import Operator
from tests.process import BrokerProcess

NONCE = uuid4().hex[:8]
EVERYTHING = {
    "README.txt", "version.json", "state.json", "settings.json", "health.json", "doctor.json", "metrics.txt",
    "inventory.json", "why.json", "log.txt", "log-file.txt", "stacks.txt", "process.txt", "directory.txt",
}  # fmt: skip


def secret(place: str) -> str:
    """Return a secret of this run, the same for each place."""
    return f"zq{place}{NONCE}xk"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


KEY = "\n".join(
    b64(secret(f"pem{number}") * 2)
    .rstrip("=")[: 64 if number < 2 else 20]
    .ljust(64 if number < 2 else 20, "A")
    for number in range(3)
)
JWT = f"eyJhbGciOiJIUzI1NiJ9.{b64(secret('jwt'))}.{b64(secret('sig'))}".replace("=", "")
LINES: dict[str, tuple[str, tuple[str, ...]]] = {
    "PEM": (f"cert -----BEGIN RSA PRIVATE KEY----- {secret('pem')} -----END RSA PRIVATE KEY-----", (secret("pem"),)),
    "lines of base64": (f"first\n{KEY}\n-----END PRIVATE KEY-----", tuple(KEY.splitlines())),
    "JWT": (f"a client showed {JWT} and left", (JWT, JWT.split(".")[1])),
    "login modules": (
        f"x.PlainLoginModule required username=alice {secret('module')};", (secret("module"),)
    ),
    "users of JAAS": (f'options user_alice="{secret("jaasuser")}" end', (secret("jaasuser"),)),
    "refused values": (
        f"Invalid value {secret('refused')} for configuration ssl.keystore.type: no", (secret("refused"),)
    ),
    "named values": (
        f'password={secret("n1")} db_passwd: "{secret("n2")} {secret("n3")}" {{"api_key": "{secret("n4")}"}} '
        f"access_token={secret('n5')}&x=1 Authorization: Basic {secret('n6')} "
        f'deep={{\\"client_secret\\": \\"{secret("n7")} {secret("n8")}\\"}} pwd=\'{secret("n9")} {secret("n10")}\'',
        tuple(secret(f"n{number}") for number in range(1, 12)),
    ),
    "options": (f"ran tool --password {secret('option')} --fast", (secret("option"),)),
    "bearers": (f"sent bearer {secret('bearer')} along", (secret("bearer"),)),
    "basic logins": (f"sent Basic {b64('alice:' + secret('basic'))} along", (b64("alice:" + secret("basic")),)),
    "SASL PLAIN": (f"bytes b'alice\\x00bob\\x00{secret('nul')}' came", (secret("nul"),)),
    "SASL PLAIN in base64": (
        f"payload {b64(chr(0) + 'bob' + chr(0) + secret('plain'))} came",
        (b64(chr(0) + "bob" + chr(0) + secret("plain")),),
    ),
    "proofs of SCRAM": (f"c=biws,r=x,p={b64(secret('proof'))} came", (b64(secret("proof")),)),
    "URLs": (
        f"to postgres://bob:{secret('url')}@db/x and https://{secret('user')}@host/", (secret("url"), secret("user"))
    ),
    "keys of AWS": (f"by AKIA{NONCE.upper()}ABCDEFGH alone", (f"AKIA{NONCE.upper()}ABCDEFGH",)),
}  # fmt: skip
"""By the rule that finds it: what a log may have, and what of it is secret."""
PLAIN = (
    "2026-11-30T10:00:00.000Z INFO magnetar.broker: token.jwks.refresh.ms is 300000 topic=orders",
    "magnetar_tokens_total{listener=\"SASL_PLAINTEXT\"} 17",
    "listeners=SASL_SSL://0.0.0.0:9093 persistent://public/default/orders",
    "basic authentication is on, bearer of news, a Basic authentication",
    f"digest {'0a1b2c3d' * 8} of /usr/lib/some/where/very/far/below/all/other/folders/of/this/machine/x",
    "ledger 123456789012 closed at entry 42, offset 9000; /var/lib/magnetar/ledgers/00/0000000012.ledger",
)  # fmt: skip


@pytest.mark.parametrize("rule", redaction.RULES)
def test_each_rule_finds_what_no_other_one_does(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    line, secrets = LINES[rule]
    clean = redacted(line)
    assert [each for each in secrets if each in clean] == [], clean
    assert clean != line
    monkeypatch.delitem(redaction.RULES, rule)
    assert any(each in redacted(line) for each in secrets), "another rule finds it, too"


def test_what_is_no_secret_stays() -> None:
    assert [redacted(each) for each in PLAIN] == list(PLAIN)


@pytest.mark.parametrize("nbytes", range(4, 30))
def test_a_secret_that_was_cut_is_none_less(nbytes: int) -> None:
    known = spellings([secret("cutamiddleoflonger")])
    line = ("x" * CUT + secret("cutamiddleoflonger"))[nbytes : CUT + nbytes]
    assert len(line) == CUT
    assert "zqcu" not in without(line, known)
    (cleaned,) = Cleaning([], None).lines(
        [f"{'word ' * 200}"[: CUT - nbytes] + secret("looks-like-nothing")[:nbytes]]
    )
    assert "zqlo" not in cleaned


def test_known_secrets_are_found_in_all_spellings() -> None:
    value = f'Sp"a ß/{NONCE}\\'
    known = spellings([value, f"data:;base64,{b64(secret('data'))}", "/etc/a/key.pem", "abc"])
    for each in (value, json.dumps(value), quote(value, safe=""), b64(secret("data"))):
        assert NONCE not in without(f"a {each} b", known)
        assert b64(secret("data")) not in without(f"a {each} b", known)
    assert without("/etc/a/key.pem abc", known) == "/etc/a/key.pem abc"
    jaas = f'x.PlainLoginModule required user_a="{secret("ja")}";'
    assert without(f"<{secret('ja')}>", spellings([jaas])) == "<***>"
    pem = f"-----BEGIN PRIVATE KEY-----\n{KEY}\n-----END PRIVATE KEY-----"
    for line in KEY.splitlines():
        assert without(f"<{line}>", spellings([pem])) == "<***>"


def test_names_of_strangers_move_no_terminal() -> None:
    cleaning = Cleaning([], None)
    assert cleaning.lines(["a \x1b]0;title\x07 b\tc"]) == ["a \\x1b]0;title\\x07 b\tc"]
    assert json.loads(cleaning.text({"group": "\x9b2J"})) == {"group": "\x9b2J"}
    assert "\x9b" not in cleaning.text({"group": "\x9b2J"})


def test_names_are_the_same_numbers_everywhere() -> None:
    names = HiddenNames(["orders", "__consumer_offsets"], ["readers", "odd name (1)"])
    assert names.text(
        "orders-12, persistent://public/default/orders-partition-3: readers. odd name (1)!"
    ) == ("topic-1-12, persistent://public/default/topic-1-partition-3: group-1. group-2!")
    assert names.text("reorders __consumer_offsets-3 orders2") == "reorders __consumer_offsets-3 orders2"
    line = 'x{topic="persistent://t/n/gone-partition-1",partition="3",consumergroup="a \\"b\\""} 1'
    assert (
        names.figures(line)
        == 'x{topic="persistent://t/n/topic-2-partition-1",partition="3",consumergroup="group-3"} 1'
    )
    assert names.text('a "b" reads gone') == "group-3 reads topic-2"
    assert names.figures('x{topic="orders"} 1') == 'x{topic="topic-1"} 1'


# -- with a broker

# Logs lines of a file as soon as it logs at all.
LOGGING = """
import logging, sys
from magnetar.base import logs
set_up, lines = logs.set_up, sys.argv.pop(1)
def logging_at_once(*arguments, **more):
    set_up(*arguments, **more)
    for line in open(lines, encoding="utf-8").read().split("\\x1e"):
        logging.getLogger("magnetar.broker").warning("%s", line)
logs.set_up = logging_at_once
import magnetar.cli.standalone
magnetar.cli.standalone.set_up = logging_at_once
from magnetar.cli.main import run
sys.exit(run(sys.argv[1:]))
"""
CONFIG = f"""
listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \\
  required username="admin" password="{secret("jaasadmin")}" user_alice="{secret("jaasalice")}";
delegation.token.secret.key={secret("delegation")}
ssl.key.password={secret("keypassword")}
managedLedgerOffloadBucket=https://bob:{secret("urlsetting")}@bucket.example/x
s3ManagedLedgerOffloadRegion=x.PlainLoginModule required user_eve="{secret("jaassetting")}";
"""
TOKEN_KEY = b64((secret("tokenkey") * 3)[:33])
KNOWN = {
    place: secret(place) for place in (
        "jaasadmin", "jaasalice", "delegation", "keypassword", "urlsetting", "jaassetting", "environ", "aws", "scram",
        "clientid", "group", "shell",
    )
} | {"token key": TOKEN_KEY}  # fmt: skip


class Prepared:
    """A broker that has secrets everywhere, with a topic and a group."""

    def __init__(self, process: BrokerProcess, topic: str, group: str) -> None:
        self.process, self.topic, self.group = process, topic, group
        self.wanted = bundle.WantedBundle(process.data, Settings(), output=process.data.parent)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "server.properties").write_text(CONFIG)
    logged = [line for line, _ in LINES.values()]
    logged += [f"without a name: {secret('keypassword')} {secret('environ')} {TOKEN_KEY}", "the last of them"]
    (folder / "lines").write_text("\x1e".join(logged))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAGNETAR_SSL_KEYSTORE_PASSWORD", secret("environ"))
        patch.setenv("AWS_SECRET_ACCESS_KEY", secret("aws"))
        process = BrokerProcess(
            folder / "data",
            "--config", str(folder / "server.properties"),
            "--set", f"token.secret.key=data:;base64,{TOKEN_KEY}",
            kafka=None,
            program=(sys.executable, "-c", LOGGING, folder / "lines"),
        )  # fmt: skip
    with process:
        topic, group = f"orders-{uuid4().hex}", f"readers-{uuid4().hex}-password={secret('group')}"
        produced(process, topic)
        ask(process.data, "set-user", user="carol", password=secret("scram"), mechanisms=[], iterations=4096)
        client = f"app {secret('keypassword')} token={secret('clientid')}"
        consumer = Consumer(
            {
                "bootstrap.servers": process.address,
                "group.id": group,
                "client.id": client,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([topic])
        while (message := consumer.poll(1)) is None or message.error() is not None:
            pass
        with process.log.open("a") as log:
            log.write("\n".join([*logged, f"aws {secret('aws')}", ""]))
        yield Prepared(process, topic, group)
        consumer.close()


def produced(process: BrokerProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": process.address})
    producer.produce(topic, b"x" * 100)
    assert producer.flush(120) == 0


def files_of(made: bundle.SupportBundle | dict[str, Any]) -> dict[str, str]:
    """Return the texts of an archive by their names; all of them lie in one folder."""
    path = Path(made["path"] if isinstance(made, dict) else made.path)
    assert path.stat().st_mode & 0o777 == 0o600
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            found = {each: archive.read(each).decode() for each in archive.namelist()}
    else:
        with tarfile.open(path) as packed:
            found = {each.name: packed.extractfile(each).read().decode() for each in packed}  # type: ignore[union-attr]
    path.unlink()
    assert {name.partition("/")[0] for name in found} == {
        path.name.removesuffix(".tar.gz").removesuffix(".zip")
    } or (path.name in ("b.zip", "b.tar.gz"))
    return {name.partition("/")[2]: text for name, text in found.items()}


def leaks(files: dict[str, str]) -> set[str]:
    secrets = KNOWN | {f"{rule} {each}": each for rule, (_, found) in LINES.items() for each in found}
    whole = "\n".join(files.values())
    return {place for place, value in secrets.items() if value in whole}


def stuck(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the metrics tell that the group is stuck, for which a broker needs a minute."""
    asked = ask_within

    def answer(within_s: float, data: Path, question: str, given: Any) -> object:
        found = asked(within_s, data, question, given)
        if question == "metrics":
            return f'{found}magnetar_group_stuck{{consumergroup="{prepared.group}",reason="x"}} 1\n'
        return found

    monkeypatch.setattr(bundle, "ask_within", answer)


@pytest.mark.slow
def test_no_secret_of_any_place_is_in_any_file(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck(prepared, monkeypatch)
    made = bundle.make(prepared.wanted, {"MAGNETAR_PASSWORD": "unused-here"})
    files = files_of(made)
    assert files.keys() == EVERYTHING, made.missing
    assert leaks(files) == set()
    for name in ("log.txt", "log-file.txt"):
        assert "the last of them" in files[name]
        assert "a client showed *** and left" in files[name]
    settings = {each["name"]: each for each in json.loads(files["settings.json"])}
    assert settings["ssl.key.password"]["value"] == "***"
    assert settings["ssl.key.password"]["source"].endswith("server.properties")
    assert settings["ssl.keystore.password"]["source"] == "the environment"
    assert settings["managed.ledger.offload.bucket"]["value"] == "https://***@bucket.example/x"
    assert settings["managed.ledger.offload.region"]["value"] == "x.PlainLoginModule required ***"
    (why,) = json.loads(files["why.json"])
    assert why["reason"]
    assert json.loads(files["inventory.json"])["topic_count"] >= 1
    names = [name for name in files if prepared.topic in files[name] or prepared.group[:20] in files[name]]
    assert names == []
    assert 'topic="topic-1"' in files["metrics.txt"]
    assert "thread MainThread" in files["stacks.txt"]
    for name in EVERYTHING:
        assert name in files["README.txt"]


@pytest.mark.slow
def test_the_secrets_are_there_before_they_are_taken_out(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, the test above would prove nothing."""
    stuck(prepared, monkeypatch)
    monkeypatch.setattr(Cleaning, "lines", lambda self, lines, figures=False: list(lines))
    monkeypatch.setattr(Cleaning, "text", lambda self, value: json.dumps(plain(value), ensure_ascii=False))
    found = leaks(files_of(bundle.make(prepared.wanted, {})))
    never = {"jaasadmin", "jaasalice", "delegation", "scram", "shell"}
    assert KNOWN.keys() - found == never


@pytest.mark.slow
def test_the_broker_alone_knows_some_and_says_where_they_are(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "secrets_of_process", lambda pid, declared: [])
    assert leaks(files_of(bundle.make(prepared.wanted, {}))) == set()


@pytest.mark.slow
def test_of_one_that_does_not_answer_there_are_process_and_log(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def note(within_s: float, data: Path, question: str, given: Any) -> object:
        asked.append(question)
        return ask_within(within_s, data, question, given)

    monkeypatch.setattr(bundle, "ask_within", note)
    os.kill(prepared.process.pid, signal.SIGSTOP)
    try:
        made = bundle.make(replace(prepared.wanted, answer_s=0.2), {})
    finally:
        os.kill(prepared.process.pid, signal.SIGCONT)
    files = files_of(made)
    assert {"process.txt", "log-file.txt", "directory.txt", "doctor.json", "README.txt"} <= files.keys()
    assert {
        "state.json",
        "stacks.txt",
        "log.txt",
        "metrics.txt",
        "why.json",
        "health.json",
    } <= made.missing.keys()
    assert asked == ["state"], "it was asked again"
    assert "did not answer within 0.2 s" in made.missing["stacks.txt"]
    assert "did not answer" in files["README.txt"]
    assert "T (stopped)" in files["process.txt"]
    assert "the last of them" in files["log-file.txt"]
    assert leaks(files) == set()


@pytest.mark.slow
def test_of_one_that_falls_silent_midway_secrets_of_its_start_are_taken_out(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(within_s: float, data: Path, question: str, given: Any) -> object:
        if question in ("redact", "stacks"):
            raise Silent("it did not answer")
        return ask_within(within_s, data, question, given)

    monkeypatch.setattr(bundle, "ask_within", silent)
    made = bundle.make(prepared.wanted, {})
    files = files_of(made)
    assert {"state.json", "settings.json", "log-file.txt"} <= files.keys()
    assert made.missing["stacks.txt"] == "it did not answer"
    assert sum("those of its start were looked for" in each for each in made.left_out) == 1
    assert leaks(files) == set()


@pytest.mark.slow
def test_the_command_asks_nothing_and_says_what_is_left_out(prepared: Prepared, tmp_path: Path) -> None:
    operator = Operator(prepared.process.address)
    made = operator.run("bundle", "--json", "-o", tmp_path, "--format", "zip", "--names").value
    files = files_of(made)
    assert files.keys() == EVERYTHING
    assert [each["bytes"] for each in made["files"]] == [
        len(files[each["name"]].encode()) for each in made["files"]
    ]
    assert prepared.topic in json.loads(files["inventory.json"])["topics"]
    assert any("audit log" in each for each in made["left_out"])
    assert not any("--names" in each for each in made["left_out"])
    shown = operator.run("bundle", "-o", tmp_path / "b.tar.gz")
    assert shown.status == 0, shown.err
    assert "Left out:" in shown.out
    assert "--names" in shown.out
    assert operator.run("bundle", "-o", tmp_path / "b.tar.gz").status == 1, "what is there is not overwritten"
    assert files_of({"path": tmp_path / "b.tar.gz"}).keys() == EVERYTHING
    assert operator.run("bundle", "--format", "rar").status == 2


# -- without a broker


@pytest.mark.slow
def test_of_one_that_is_down_there_are_checkup_directory_and_a_log_that_is_named(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        produced(process, "down")
    (tmp_path / "server.properties").write_text(CONFIG)
    log = tmp_path / "log"
    log.write_text(
        "\n".join(
            [*(line for line, _ in LINES.values()), f"no name: {secret('keypassword')} {secret('shell')}"]
        )
    )
    made = Operator("127.0.0.1:1").run(
        "bundle", "--json", "-o", tmp_path, "--data", tmp_path / "data",
        "--config", tmp_path / "server.properties", "--log-file", log,
        MAGNETAR_PASSWORD=secret("shell"),
    ).value  # fmt: skip
    files = files_of(made)
    assert files.keys() == {
        "README.txt", "version.json", "settings.json", "doctor.json", "log-file.txt", "directory.txt"
    }  # fmt: skip
    assert made["missing"].keys() == EVERYTHING - files.keys()
    assert "no broker serves" in made["missing"]["stacks.txt"]
    assert "no broker serves" in files["README.txt"]
    assert ".ledger" in files["directory.txt"]
    assert json.loads(files["doctor.json"])["running"] is False
    assert leaks(files) == set()
    ran = Operator("127.0.0.1:1").run("bundle", "-o", tmp_path)
    assert ran.status == 1
    assert "--data" in ran.err


def test_a_log_and_a_directory_are_read_in_bounds(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("".join(f"line {number}\n" for number in range(1000)))
    assert last_lines(log, 100)[0].startswith("line ")
    assert len("\n".join(last_lines(log, 100))) < 100
    assert last_lines(log, 1 << 20)[0] == "line 0"
    (tmp_path / "link").symlink_to("/")
    lines = layout(tmp_path)
    assert any(each.endswith("link (a link)") for each in lines)
    assert len(lines) == 4


def test_an_archive_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Declined):
        bundle_archive.write(tmp_path, b"x")

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(AdminError, match="No space"):
        bundle_archive.write(tmp_path / "b", b"x")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("rule", redaction.RULES)
def test_a_pattern_takes_time_that_grows_with_the_text_alone(rule: str) -> None:
    """Lines of strangers do not hold up the command: each pattern sees 4,000 letters that it nearly matches."""
    pattern, stands_for = redaction.RULES[rule]
    for each in (
        '"\\', "password=", "password", "passwd \\\\", "://", "://a:", "a:", "\\", "ey", "eyJ", "A", "-", "--a",
        "user_", "a@", "Invalid value ", "Invalid value  for configuration ", "-----BEGIN PRIVATE KEY-----",
        "\0a", "\\x00a", "Bearer ",
    ):  # fmt: skip
        text = each * (4000 // len(each))
        began = time.thread_time()
        pattern.sub(stands_for, text + " " + text + "!")
        assert time.thread_time() - began < 5, each
