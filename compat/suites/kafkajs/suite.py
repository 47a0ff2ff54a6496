"""kafkajs's own tests of brokers, pointed at one that already runs.

The source is a checkout of tulios/kafkajs. The suite wants three brokers of localhost with a listener each in the
clear, for TLS, and for SASL over TLS, nine ports in all: one broker with nine listeners stands for them. The ports in
the text of the tests are replaced in a copy of the source, and what its scripts do with Docker is done by its client.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import bcrypt
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from run import HOME

from suites.kafka_served import AUTHORIZER, Listener, listening

KINDS = ("magnetar", "kafka")
BROKER_VERSION = "2.4"
"""The newest of the suite's own CI: it decides which tests leave themselves out."""
PORTS = tuple(map(str, range(9092, 9101)))
"""Of localhost, where the text has three brokers' listeners, one broker after the other."""
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_SSL")
USERS = {"test": "testtest", "bob": "bobbob", "alice": "alicealice"}
"""Who logs in by PLAIN; the text of a password is ours in either kind of broker, which is basic:USER:PASSWORD."""
SCRAM_USER = "testscram"
SCRAM_PASSWORDS = {
    ScramMechanism.SCRAM_SHA_256: b"testtestscram=256",
    ScramMechanism.SCRAM_SHA_512: b"testtestscram=512",
}
SETTINGS = (
    "node.id=0",
    "num.partitions=2",
    "group.initial.rebalance.delay.ms=0",
    "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    *AUTHORIZER,
)
FOLDERS = "(admin|broker|cluster|consumer|producer)"
"""Of ``src``, whose tests ask a broker anything."""
MODULES = (
    "execa", "glob", "ip", "jest", "jest-circus", "jest-extended", "jsonwebtoken", "mockdate", "semver", "uuid",
)  # fmt: skip
"""Of the suite's development dependencies, those that its tests load."""
SUITE_SECONDS = 2400
_ENDS = {"passed": "passed", "failed": "failed", "pending": "skipped"}
_ADD_PARTITIONS = """#!/bin/sh
exec node -e "
const { Kafka } = require('$PWD')
const admin = new Kafka({ brokers: ['localhost:9092'], logLevel: 0 }).admin()
const topicPartitions = [{ topic: process.env.TOPIC, count: Number(process.env.PARTITIONS) }]
admin.connect().then(() => admin.createPartitions({ topicPartitions })).then(() => admin.disconnect())"
"""


def default_source() -> Path | None:
    """There is none: see FINDINGS.md."""
    return None


@contextmanager
def serve(kind: str, source: Path) -> Iterator[str]:
    """Start ``kind`` of broker with what the suite's scripts make; give its nine addresses, in the order of `PORTS`."""
    with tempfile.TemporaryDirectory(prefix="kafkajs-") as directory:
        there = Path(directory)
        settings = [*SETTINGS, f"ssl.keystore.location={_keystore(there)}", *_users(kind, there)]
        listeners = [Listener(f"{protocol}_{broker}", protocol) for broker in "123" for protocol in PROTOCOLS]
        with listening(kind, listeners, *settings, host="localhost") as addresses:
            _prepare(addresses[0])
            yield ",".join(addresses)


def run(source: Path, bootstrap: str, tests: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Give (file::test, passed | failed | skipped, why) for each test; blanks in its name are told as dashes."""
    home = HOME / "kafkajs-tests"
    _install(home, source)
    copy = home / "source"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(".git", "node_modules", "website"))
    _point(copy, dict(zip(PORTS, (each.rpartition(":")[2] for each in bootstrap.split(",")), strict=True)))
    files = sorted({test.partition("::")[0] for test in tests}) or [f"src/{FOLDERS}/"]
    report = home / "report.json"
    report.unlink(missing_ok=True)
    subprocess.run(
        [home / "node_modules" / ".bin" / "jest", "--ci", "--runInBand", "--forceExit", "--reporters", "default",
         "--json", f"--outputFile={report}", "--testPathPattern", *files],
        cwd=copy, env={**os.environ, "NODE_ENV": "test", "KAFKA_VERSION": BROKER_VERSION},
        capture_output=True, text=True, timeout=SUITE_SECONDS, check=False,
    )  # fmt: skip
    for file in json.loads(report.read_text())["testResults"]:
        path = str(Path(file["name"]).relative_to(copy))
        for each in file["assertionResults"]:
            test = f"{path}::" + re.sub(r"[^\w.>-]+", "-", each["fullName"])
            if (not tests or test in tests) and (outcome := _ENDS.get(each["status"])):
                yield test, outcome, "".join(each["failureMessages"])[:300].replace("\n", " ")


def _install(home: Path, source: Path) -> None:
    """Bring what the tests load, once, in the versions that the suite names."""
    home.mkdir(exist_ok=True)
    wanted = json.loads((source / "package.json").read_text())["devDependencies"]
    package = json.dumps({"private": True, "dependencies": {name: wanted[name] for name in MODULES}})
    kept = home / "package.json"
    if not kept.exists() or kept.read_text() != package:
        command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        kept.write_text(package)
        subprocess.run(command, cwd=home, check=True)


def _point(copy: Path, ports: dict[str, str]) -> None:
    """Write our ports and passwords into the text, and our script in place of Docker's."""
    (copy / "scripts" / "addPartitions.sh").write_text(_ADD_PARTITIONS)
    tests = [
        file for folder in ("admin", "broker") for file in (copy / "src" / folder / "__tests__").glob("*.js")
    ]
    for file in (copy / "testHelpers" / "index.js", copy / "scripts" / "addPartitions.sh", *tests):
        text = re.sub(r"\b(909\d|9100)\b", lambda found: ports[found[1]], file.read_text())
        for user, password in USERS.items():
            text = text.replace(f"'{password}'", f"'{_login(user)}'")
        file.write_text(text)


def _login(user: str) -> str:
    return f"basic:{user}:{USERS[user]}"


def _keystore(there: Path) -> Path:
    """A key and a certificate of localhost; the suite's own store is JKS, and its client takes any."""
    key, certificate, store = there / "key.pem", there / "certificate.pem", there / "store.pem"
    making = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "30",
        "-subj",
        "/CN=localhost",
    ]
    subprocess.run([*making, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    store.write_text(key.read_text() + certificate.read_text())
    return store


def _users(kind: str, there: Path) -> list[str]:
    """What tells a broker of those who log in."""
    if kind == "magnetar":
        file = there / "users"
        hashes = {
            user: bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode()
            for user, password in USERS.items()
        }
        file.write_text("".join(f"{user}:{digest}\n" for user, digest in hashes.items()))
        return [f"basicAuthConf={file.as_uri()}"]
    module = "org.apache.kafka.common.security"
    plain = " ".join(f'user_{user}="{_login(user)}"' for user in USERS)
    told = ["ssl.keystore.type=PEM"]
    for broker in "123":
        name = f"listener.name.sasl_ssl_{broker}"
        told.append(f"{name}.plain.sasl.jaas.config={module}.plain.PlainLoginModule required {plain};")
        told += [
            f"{name}.scram-sha-{bits}.sasl.jaas.config={module}.scram.ScramLoginModule required;"
            for bits in (256, 512)
        ]
    return told


def _prepare(bootstrap: str) -> None:
    """Make the SCRAM user and the topic that the suite's scripts make."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism, password in SCRAM_PASSWORDS.items():
        user = UserScramCredentialUpsertion(SCRAM_USER, ScramCredentialInfo(mechanism, 8192), password)
        for done in admin.alter_user_scram_credentials([user]).values():
            done.result(60)
    for done in admin.create_topics([NewTopic("test-topic-already-exists", 2, 1)]).values():
        done.result(60)
