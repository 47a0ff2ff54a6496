#!/usr/bin/env python3
"""Let Kafka's own tools make users, ACLs and delegation tokens on a broker of ours, and log in with what they made.

    compat/run_security.py

Prints a line for each check; ends with status 1 when one fails. Maven brings the tools (see kafka-tools.sh).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from broker import magnetar, standalone

HERE = Path(__file__).resolve().parent
TOOLS = str(HERE / "kafka-tools.sh")
SETTINGS = (
    "listeners=SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512",
    "authentication.enabled=true",
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users=User:admin",
    "delegation.token.secret.key=a secret",
    "group.initial.rebalance.delay.ms=0",
)
SECONDS = 120


class Session:
    """The tools, as several users of one broker."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self._directory = directory

    def user(self, name: str, password: str, more: str = "") -> str:
        """Write the properties of a client that logs in so, and give the file."""
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        file = self._directory / f"{re.sub(r'[^a-z]', '', name.lower())}.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
            f'sasl.jaas.config={module} required username="{name}" password="{password}"{more};\n'
        )
        return str(file)

    def tool(self, name: str, file: str, *arguments: str) -> str:
        """Run a tool as somebody, and give all that it said."""
        flag = "--command-config"
        command = [TOOLS, name, "--bootstrap-server", self._bootstrap, flag, file, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        return done.stdout + done.stderr


def checked(what: str, holds: bool, said: str = "") -> bool:
    print(f"{'ok  ' if holds else 'FAIL'} {what}" + ("" if holds else f"\n{said[-1500:]}"))
    return holds


def checks(session: Session) -> list[bool]:
    """Do what an operator does, one after the other."""
    admin, carol = session.user("admin", "admin's"), session.user("carol", "carol's")
    session.tool("topics", admin, "--create", "--topic", "orders")
    entity = ("--entity-type", "users", "--entity-name", "carol")
    password = "SCRAM-SHA-256=[iterations=8192,password=carol's]"
    said = session.tool("configs", admin, "--alter", *entity, "--add-config", password)
    found = [checked("kafka-configs makes a user", "Completed" in said, said)]
    once = ("--topic", "orders", "--max-messages", "1")
    produce = ("verifiable-producer", carol, *once)
    said = session.tool(*produce)
    found.append(checked("who was granted nothing may not produce", "TopicAuthorization" in said, said))
    said = session.tool(
        "acls", admin, "--add", "--allow-principal", "User:carol", "--producer", "--topic", "orders"
    )
    found.append(checked("kafka-acls adds", "operation=WRITE" in said, said))
    said = session.tool(*produce)
    found.append(checked("then she may", "producer_send_success" in said, said))
    said = session.tool("acls", carol, "--list")
    found.append(checked("and not see ACLs", "ClusterAuthorization" in said, said))
    prefixed = ("--resource-pattern-type", "prefixed", "--topic", "ord")
    said = session.tool(
        "acls", admin, "--add", "--deny-principal", "User:carol", "--operation", "All", *prefixed
    )
    said = session.tool(*produce)
    found.append(checked("a denied prefix goes before", "TopicAuthorization" in said, said))
    said = session.tool("acls", admin, "--list")
    found.append(checked("kafka-acls lists", said.count("User:carol") >= 3, said))
    session.tool(
        "acls",
        admin,
        "--remove",
        "--force",
        "--deny-principal",
        "User:carol",
        "--operation",
        "All",
        *prefixed,
    )
    said = session.tool("acls", admin, "--list")
    found.append(checked("kafka-acls removes", "DENY" not in said, said))
    said = session.tool("delegation-tokens", carol, "--create", "--max-life-time-period", "-1")
    token = re.search(r"^(\S+)\s+(\S+==)\s+User:carol", said, re.MULTILINE)
    found.append(checked("kafka-delegation-tokens makes a token", token is not None, said))
    if token is not None:
        worker = session.user(token[1], token[2], ' tokenauth="true"')
        said = session.tool("verifiable-producer", worker, *once)
        found.append(checked("a worker produces with it", "producer_send_success" in said, said))
        said = session.tool(
            "delegation-tokens", carol, "--expire", "--expiry-time-period", "-1", "--hmac", token[2]
        )
        said = session.tool("topics", worker, "--list")
        found.append(checked("not once it has ended", "invalid credentials" in said, said))
    session.tool("configs", admin, "--alter", *entity, "--delete-config", "SCRAM-SHA-256")
    said = session.tool("topics", carol, "--list")
    found.append(checked("who was deleted does not get in", "invalid credentials" in said, said))
    return found


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="magnetar-security-") as scratch:
        data = Path(scratch) / "data"
        with standalone(*SETTINGS, data=data) as bootstrap:
            making = [magnetar(), "user", "set", "admin", "--data", str(data)]
            subprocess.run(making, input="admin's", text=True, check=True, capture_output=True)
            return 0 if all(checks(Session(bootstrap, Path(scratch)))) else 1


if __name__ == "__main__":
    sys.exit(main())
