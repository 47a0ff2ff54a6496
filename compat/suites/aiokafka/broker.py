"""A broker for aiokafka's suite, which says at which ports and with which certificates: see `stand_in`.

python -m suites.aiokafka.broker magnetar|kafka JSON       in compat's directory; it ends with its standard input
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from broker import standalone

from suites.kafka_served import AUTHORIZER

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import bcrypt

from benchmarks.peers.kafka import Kafka

USERS = ("admin", "test", "test2")  # each is its own password
PORTS = {
    "PLAINTEXT": "ADVERTISED_PORT",
    "SSL": "ADVERTISED_SSL_PORT",
    "SASL_PLAINTEXT": "ADVERTISED_SASL_PLAINTEXT_PORT",
    "SASL_SSL": "ADVERTISED_SASL_SSL_PORT",
}
STORE_PASSWORD = "abcdefgh"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def settings(asked: Mapping[str, str]) -> list[str]:
    """Return what both brokers are given."""
    listeners = ",".join(f"{name}://127.0.0.1:{asked[port]}" for name, port in PORTS.items())
    certificates = Path(asked["SSL"])
    return [
        f"num.partitions={asked['NUM_PARTITIONS']}",
        f"listeners={listeners}",
        "auto.create.topics.enable=true",
        "group.initial.rebalance.delay.ms=0",  # as in Kafka's own file of settings; tests wait for two seconds
        f"ssl.keystore.location={certificates / 'br_server.keystore.jks'}",
        f"ssl.truststore.location={certificates / 'br_server.truststore.jks'}",
        "ssl.keystore.type=PKCS12",
        "ssl.truststore.type=PKCS12",
        f"ssl.keystore.password={STORE_PASSWORD}",
        f"ssl.key.password={STORE_PASSWORD}",
        f"ssl.truststore.password={STORE_PASSWORD}",
        "ssl.client.auth=required",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "super.users=User:admin;User:ANONYMOUS",
        *AUTHORIZER,
    ]


@contextmanager
def magnetar(asked: Mapping[str, str], directory: Path) -> Iterator[None]:
    """Start ours."""
    users = directory / "htpasswd"
    users.write_text(
        "".join(f"{each}:{bcrypt.hashpw(each.encode(), bcrypt.gensalt(4)).decode()}\n" for each in USERS)
    )
    own = ["authentication.enabled=true", "anonymous.user.role=ANONYMOUS", f"basic.auth.conf={users}"]
    with standalone(*settings(asked), *own):
        yield


@contextmanager
def kafka(asked: Mapping[str, str], directory: Path) -> Iterator[None]:
    """Start Apache Kafka."""

    class Suited(Kafka):
        def prepare(self) -> None:
            self.port = int(asked["ADVERTISED_PORT"])
            super().prepare()
            controller = next(
                line.rpartition(":")[2]
                for line in self._properties.read_text().splitlines()
                if line.startswith("controller.quorum.bootstrap.servers=")
            )
            users = " ".join(f'user_{each}="{each}"' for each in USERS)
            lines = dict(line.split("=", 1) for line in settings(asked))
            lines["advertised.listeners"] = lines["listeners"]
            lines["listeners"] += f",CONTROLLER://127.0.0.1:{controller}"
            names = ("CONTROLLER:PLAINTEXT", *(f"{each}:{each}" for each in PORTS))
            lines["listener.security.protocol.map"] = ",".join(names)
            for name in ("sasl_plaintext", "sasl_ssl"):
                lines[f"listener.name.{name}.plain.sasl.jaas.config"] = f"{PLAIN} required {users};"
                for scram in ("scram-sha-256", "scram-sha-512"):
                    lines[f"listener.name.{name}.{scram}.sasl.jaas.config"] = f"{SCRAM} required;"
            with self._properties.open("a") as file:
                file.writelines(f"{name}={value}\n" for name, value in lines.items())

    with Suited(directory / "data"):
        yield


def main() -> None:
    """Serve until nobody is there who wants it."""
    kind, asked = sys.argv[1], json.loads(sys.argv[2])
    start = magnetar if kind == "magnetar" else kafka
    with tempfile.TemporaryDirectory(prefix="aiokafka-") as directory, start(asked, Path(directory)):
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
