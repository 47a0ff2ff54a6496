"""Stores and engines are found by their URLs, also those of installed packages, and what is wrong with one is told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from magnetar.base.errors import InvalidConfig
from magnetar.ledger.memory import MemoryEngine
from magnetar.logs.storage.opening import open_storage
from magnetar.metadata import DirectoryInUse, MemoryStore, SqliteStore
from magnetar.settings.settings import Settings
from tests.process import BrokerDidNotStart, BrokerProcess

PACKAGE = """
import json
from dataclasses import asdict, dataclass

from magnetar.base.setting import HandlerSettings, setting
from magnetar.logs.storage.factories import MetadataStoreFactory, StorageEngineFactory
from magnetar.base.values import Kind, at_least
from magnetar.ledger.memory import MemoryEngine
from magnetar.metadata import MemoryStore


@dataclass(frozen=True, slots=True)
class QuorumSettings(HandlerSettings):
    shelf_write_quorum: int = setting(2, Kind.INT, "How many copies.", rule=at_least(1))


@dataclass(frozen=True, slots=True)
class SessionSettings(HandlerSettings):
    shelf_session_ms: int = setting(30000, Kind.INT, "How long a session lives.", unit="ms")


class Stores(MetadataStoreFactory):
    scheme = "shelf"
    settings = (SessionSettings,)

    async def open(self, url, settings, held):
        (held.directory / "store.json").write_text(json.dumps([url, asdict(settings.of(SessionSettings))]))
        return MemoryStore()


class Engines(StorageEngineFactory):
    scheme = "shelf"
    settings = (QuorumSettings,)

    async def open(self, url, settings, held, store):
        (held.directory / "engine.json").write_text(json.dumps([url, asdict(settings.of(QuorumSettings))]))
        return MemoryEngine(store, root=held.directory)


class Halves(StorageEngineFactory):
    scheme = "half"
"""
POINTS = """
[magnetar.metadata_stores]
shelf = shelf_package:Stores
gone = shelf_package:Nowhere
[magnetar.storage_engines]
shelf = shelf_package:Engines
store = shelf_package:Stores
half = shelf_package:Halves
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    about = site / "shelf_package-1.0.dist-info"
    about.mkdir(parents=True)
    (site / "shelf_package.py").write_text(PACKAGE)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH", ""))))
    )
    monkeypatch.syspath_prepend(str(site))


def through(address: str, topic: str, values: list[bytes]) -> list[bytes]:
    """Return what a stock consumer reads of what a stock producer wrote."""
    producer = Producer({"bootstrap.servers": address})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    read: list[bytes] = []
    while len(read) < len(values):
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        read.append(message.value())
    consumer.close()
    return read


@pytest.mark.slow
def test_storage_of_an_installed_package_serves(tmp_path: Path, installed: None) -> None:
    texts = {
        "metadata.url": "shelf://first:1,second:2/magnetar",
        "storage.url": "shelf:deep",
        "shelf.write.quorum": "3",
        "shelf.session.ms": "4000",
    }
    options = [word for name, text in texts.items() for word in ("--set", f"{name}={text}")]
    values = [b"%d" % number for number in range(1000)]
    data = tmp_path / "data"
    with BrokerProcess(data, *options) as broker:
        assert through(broker.served["kafka"][0], "orders", values) == values
    assert json.loads((data / "store.json").read_text()) == [
        texts["metadata.url"],
        {"shelf_session_ms": 4000},
    ]
    assert json.loads((data / "engine.json").read_text()) == [texts["storage.url"], {"shelf_write_quorum": 3}]
    assert not list(data.rglob("*.ledger"))
    assert not (data / "metadata.sqlite").exists()
    with pytest.raises(BrokerDidNotStart, match=r"shelf\.write\.quorum"):
        BrokerProcess(data, *options, "--set", "shelf.write.quorum=0").__enter__()


@pytest.mark.slow
def test_a_broker_that_forgets_serves(tmp_path: Path) -> None:
    options = ("--set", "metadata.url=memory:", "--set", "storage.url=memory:")
    values = [b"%d" % number for number in range(1000)]
    for _ in range(2):  # the second one knows nothing of the first one's topic
        with BrokerProcess(tmp_path / "data", *options) as broker:
            assert through(broker.served["kafka"][0], "orders", values) == values
    assert not list((tmp_path / "data").rglob("*.ledger"))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (
            {"metadata.url": "zoo://a:1"},
            "metadata.url=zoo://a:1: nothing opens 'zoo': it is none of sqlite, memory",
        ),
        ({"storage.url": "books"}, "nothing opens 'books'.*magnetar.storage_engines"),
        ({"metadata.url": "gone:"}, "metadata.url=gone:: shelf_package:Nowhere cannot be loaded"),
        ({"storage.url": "store:"}, "shelf_package:Stores is no StorageEngineFactory"),
        ({"storage.url": "half:"}, "shelf_package:Halves does not say how to open"),
        ({"metadata.url": "sqlite:/elsewhere"}, "metadata.url: nothing follows sqlite:"),
        ({"storage.url": "files:/elsewhere"}, "storage.url: nothing follows files:"),
        ({"storage.url": "memory:"}, "metadata.url must be memory:, too"),
        ({"metadata.url": "memory:"}, "would forget"),
    ],
)
async def test_what_cannot_be_opened_is_told(
    tmp_path: Path, installed: None, texts: dict[str, str], message: str
) -> None:
    settings = Settings().with_values({"data.dir": str(tmp_path / "data")} | texts)
    for _ in range(2):  # what was opened before it was found out is let go of
        with pytest.raises(InvalidConfig, match=message):
            await open_storage(settings)


@pytest.mark.parametrize("kind", ["embedded", "memory"])
async def test_a_data_directory_has_one_broker_wherever_messages_lie(tmp_path: Path, kind: str) -> None:
    texts = {"metadata.url": "memory:", "storage.url": "memory:"} if kind == "memory" else {}
    settings = Settings().with_values({"data.dir": str(tmp_path / "data")} | texts)
    first = await open_storage(settings)
    assert isinstance(first.store, MemoryStore if kind == "memory" else SqliteStore)
    assert isinstance(first.engine, MemoryEngine) == (kind == "memory")
    with pytest.raises(DirectoryInUse):
        await open_storage(settings)
    await first.engine.close()
    await first.store.close()
    with pytest.raises(DirectoryInUse):
        await open_storage(settings)  # the last to go
    first.lock.release()
    again = await open_storage(settings)
    await again.engine.close()
    await again.store.close()
    again.lock.release()
