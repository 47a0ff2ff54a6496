"""Bookies that want a login (SASL with DIGEST-MD5), in Pulsar's words: who has it is served, who has not is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.admin.errors import Invalid
from magnetar.cli.ledger import _cluster
from tests.cluster.brokers import BrokerProcess, read_back
from tests.cluster.servers import Cluster, class_path

class_path()  # skips the module where BookKeeper cannot be run
pytestmark = [pytest.mark.slow]
_DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
PLUGIN = "org.apache.bookkeeper.sasl.SASLClientProviderFactory"
RECORDS = 20_000


class WithLogins(NamedTuple):
    cluster: Cluster
    directory: Path

    def broker(self, number: int, password: str | None) -> BrokerProcess:
        """Return a broker that logs in with a password, or with None not at all."""
        conf = ""
        if password is not None:
            jaas = self.directory / f"client-{number}.jaas"
            jaas.write_text(f'BookKeeper {{\n  {_DIGEST} required username="m" password="{password}";\n}};\n')
            properties = self.directory / f"client-{number}.properties"
            properties.write_text(f"zookeeper.sasl.client=false\njava.security.auth.login.config={jaas}\n")
            conf = f"metadataStoreConfigPath={properties}\nbookkeeperClientAuthenticationPlugin={PLUGIN}\n"
        return BrokerProcess(self.cluster, self.directory, number, conf=conf)


@pytest.fixture(scope="module")
def logins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WithLogins]:
    directory = tmp_path_factory.mktemp("logins")
    jaas = directory / "bookie.jaas"
    jaas.write_text(f'Bookie {{\n  {_DIGEST} required user_m="secret";\n}};\n')
    extra = "bookieAuthProviderFactoryClass=org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory\n"
    extra += "saslJaasClientAllowedIds=.*\n"
    options = [f"-Djava.security.auth.login.config={jaas}", "-Dzookeeper.sasl.client=false"]
    cluster = Cluster(directory / "cluster", 2, extra=extra, options=options)
    cluster.start()
    yield WithLogins(cluster, directory)
    cluster.kill()


def sent(broker: BrokerProcess, topic: str, count: int, **settings: object) -> list[object]:
    """Produce so many; return what failed of them."""
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{broker.kafka}", **settings})
    failed: list[object] = []
    for number in range(count):
        producer.produce(
            topic, b"%d" % number, partition=0, on_delivery=lambda error, _: error and failed.append(error)
        )
        producer.poll(0)
    assert producer.flush(120) == 0
    return failed


def test_who_logs_in_is_served_and_nobody_else(logins: WithLogins) -> None:
    broker = logins.broker(1, "secret")
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.kafka}"})
        admin.create_topics([NewTopic("t", 1)])["t"].result(60)
        assert sent(broker, "t", RECORDS, **{"queue.buffering.max.messages": RECORDS}) == []
        found, *_ = read_back(f"127.0.0.1:{broker.kafka}", "t", "g", RECORDS)
        assert found == list(range(RECORDS))
        with pytest.raises(Invalid, match="bookkeeperClientAuthenticationPlugin"):
            _cluster(None, broker.config, None, None, None)
    finally:
        broker.end()


@pytest.mark.parametrize("password", [None, "wrong"])
def test_who_does_not_log_in_writes_nothing(logins: WithLogins, password: str | None) -> None:
    broker = logins.broker(2 if password is None else 3, password)
    broker.start()
    try:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.kafka}"})
        admin.create_topics([NewTopic(f"refused-{password}", 1)])[f"refused-{password}"].result(60)
        assert len(sent(broker, f"refused-{password}", 1, **{"message.timeout.ms": 15_000})) == 1
    finally:
        broker.end()
