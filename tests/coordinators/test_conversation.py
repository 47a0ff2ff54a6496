"""A whole broker, spoken to over a socket, answers about groups as Kafka 4.3.1 did."""

from __future__ import annotations

from pathlib import Path

from magnetar.node.service import BrokerService
from magnetar.settings.settings import Settings
from tests.coordinators.against_kafka import Conversation, talk

KAFKA = (Path(__file__).parent / "kafka_answers.txt").read_text().splitlines()


async def test_answers_are_kafkas(tmp_path: Path) -> None:
    settings = {
        "data.dir": str(tmp_path),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "group.initial.rebalance.delay.ms": "50",
        "flush": "os",
    }
    service = BrokerService(Settings().with_values(settings))
    await service.start()
    try:
        conversation = Conversation(str(service.listeners["kafka"][0].advertised))
        await talk(conversation)
    finally:
        await service.close()
    assert conversation.lines == KAFKA
