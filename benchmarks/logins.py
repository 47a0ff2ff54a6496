"""What TLS takes from the rates, beside Kafka's TLS; and what ACLs add to the cost of a small produce, beside none.

Certificates are an authority's of this run, with keys on P-256; both sides and their clients agree on TLS 1.3. Neither
broker can hand a page of its cache to the socket as it is when the bytes have to be enciphered.
"""

from __future__ import annotations

import itertools
import time

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from benchmarks import librdkafka, tools
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.magnetar import MagnetarOs
from benchmarks.peers.server import Server, free_port
from benchmarks.samples import Samples
from benchmarks.thin import ThinClient
from magnetar.records.batch import PlainRecord, encode_batch
from tests.security.certificates import Authority

_TOPIC, _PARTITIONS, _SIZE = "enciphered", 4, 1000


class _Tls(Server):
    """Has a second listener, for TLS; ``trusted`` is the file by which its clients know it."""

    def certify(self) -> tuple[str, ...]:
        """Make the certificate; return the settings of the broker that have it."""
        self.tls_port = free_port()
        authority = Authority(self.data)
        certificate, key = authority.sign("broker")
        both = self.data / "keystore.pem"
        both.write_bytes(key.read_bytes() + certificate.read_bytes())
        self.trusted = authority.file
        return ("ssl.keystore.type=PEM", f"ssl.keystore.location={both}")

    @property
    def tls_address(self) -> str:
        return f"127.0.0.1:{self.tls_port}"


class MagnetarTls(_Tls, MagnetarOs):
    def prepare(self) -> None:
        self.settings = (*MagnetarOs.settings, *self.certify())

    def command(self) -> list[str]:
        command = super().command()
        at = command.index("--kafka")
        listeners = f"listeners=PLAINTEXT://{self.address},SSL://{self.tls_address}"
        return [*command[:at], *command[at + 2 :], "--set", listeners]


class KafkaTls(_Tls, Kafka):
    def prepare(self) -> None:
        self.extra = self.certify()
        self.more_listeners = (f"SSL://{self.tls_address}",)
        super().prepare()


def fill(server: MagnetarTls | KafkaTls) -> None:
    """Make the topic."""
    with ThinClient.to(server.address) as client:
        client.create_topics([_TOPIC], _PARTITIONS)


def measure_tls(server: MagnetarTls | KafkaTls, samples: Samples, turn: int, records: int) -> None:
    """Produce, and read all that is there; the first turn warms up and is not told."""
    properties = (
        "security.protocol=SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={server.trusted}",
    )
    cpu = server.cpu_seconds()
    produced = tools.producer_perf(
        server.tls_address, _TOPIC, records=records, size=_SIZE, warm_up=records // 4,
        properties=("batch.size=65536", "linger.ms=5", *properties),
    )  # fmt: skip
    used = (server.cpu_seconds() - cpu) * 1e6 / records
    there = records * (turn + 1)
    cpu = server.cpu_seconds()
    read = librdkafka.read(
        server.tls_address, _TOPIC, _PARTITIONS, there,
        {"security.protocol": "ssl", "ssl.ca.location": server.trusted, "queued.min.messages": 1_000_000},
    )  # fmt: skip
    reading = (server.cpu_seconds() - cpu) * 1e6 / there
    if turn:
        samples.add("TLS, produce 1000 B, records/s", server.name, produced.records_per_s)
        samples.add("TLS, produce 1000 B, broker us/record", server.name, used)
        samples.add("TLS, consume 1000 B, records/s", server.name, read.records / read.seconds)
        samples.add("TLS, consume 1000 B, broker us/record", server.name, reading)


_WRITTEN = "written"
_ME = "ANONYMOUS"
_GUARDED = (
    *MagnetarOs.settings,
    "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "authenticationEnabled=true",
    f"anonymousUserRole={_ME}",
)


class MagnetarGuarded(MagnetarOs):
    """Asks its ACLs who may write; there are a thousand of other names."""

    name = "magnetar, flush=os, ACLs"
    settings = (*_GUARDED, f"super.users=User:{_ME}")

    def guard(self) -> None:
        """Have the rules made by a super user, and go on without any."""
        rules = [
            AclBinding(
                ResourceType.TOPIC, name, ResourcePatternType.LITERAL, f"User:{user}", "*",
                AclOperation.WRITE, AclPermissionType.ALLOW,
            )
            for name, user in ((_WRITTEN, _ME), *((f"other-{number}", f"user-{number}") for number in range(1000)))
        ]  # fmt: skip
        admin = AdminClient({"bootstrap.servers": self.address})
        for made in admin.create_acls(rules).values():
            made.result(60)
        self.stop()
        self.settings = _GUARDED
        self.start()


def prepare_small(server: Server) -> None:
    with ThinClient.to(server.address) as client:
        client.create_topics([_WRITTEN], 1)
    if isinstance(server, MagnetarGuarded):
        server.guard()


def measure_small(server: Server, samples: Samples, turn: int, requests: int) -> None:
    """Append batches of one record, one request after the other; the first turn warms up and is not told."""
    batch = encode_batch([PlainRecord(None, b"v" * 100, timestamp=time.time_ns() // 1_000_000)])
    with ThinClient.to(server.address) as client:
        cpu = server.cpu_seconds()
        for _ in itertools.repeat(None, requests):
            client.send_batch(_WRITTEN, 0, batch)
        used = (server.cpu_seconds() - cpu) * 1e6 / requests
    if turn:
        samples.add("produce of one record, broker us/request", server.name, used)
