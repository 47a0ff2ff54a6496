"""Work that nobody waits for is seen when it fails, goes on after it, and ends with the broker, whatever it raises."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.base import background as module
from magnetar.base.background import Background, end_all
from magnetar.base.errors import TopicNotFound
from magnetar.kafka.settings import KafkaSettings
from magnetar.node.address_file import ADDRESS_FILE
from magnetar.node.compaction_monitor import CompactionMonitor
from magnetar.node.process_figures import background_figures
from magnetar.node.service import BrokerService
from magnetar.settings.node import NodeSettings
from magnetar.settings.settings import Settings


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What is slept, which takes no time."""
    slept: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await real(0)

    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    return slept


def settings(data: Path) -> Settings:
    return Settings(NodeSettings(data_dir=str(data)), KafkaSettings(listeners=("PLAINTEXT://127.0.0.1:0",)))


async def turns(count: int = 20) -> None:
    for _ in range(count):
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(done.set_result, None)
        await done


def test_what_fails_is_logged_counted_and_tried_again_after_growing_pauses(
    pauses: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    rounds: list[int] = []
    succeeds_at = 9

    async def work() -> None:
        rounds.append(len(rounds))
        if len(rounds) < succeeds_at:
            raise PermissionError("not yours")
        if len(rounds) > succeeds_at:
            await asyncio.get_running_loop().create_future()

    async def main() -> None:
        background = Background()
        background.repeat("sweeping", lambda: 5.0, work, essential=True)
        while len(rounds) < 3:
            await turns(1)
        await turns()
        assert background.failures["sweeping"] == succeeds_at - 1
        assert background.failing() == {"sweeping": 0}
        assert background.troubles() == []
        await background.close()

    asyncio.run(main())
    assert pauses[: 2 * succeeds_at] == [5, 1, 5, 2, 5, 4, 5, 8, 5, 16, 5, 32, 5, 60, 5, 60, 5, 5]
    (first, *_) = [record for record in caplog.records if "sweeping" in record.getMessage()]
    assert first.levelno == logging.ERROR
    assert first.exc_info is not None
    assert isinstance(first.exc_info[1], PermissionError)


def test_essential_work_that_goes_on_failing_is_told(pauses: list[float]) -> None:
    async def fails() -> None:
        raise OSError("no")

    async def main() -> None:
        background = Background()
        work = background.repeat("keeping", lambda: 1.0, fails, essential=True)
        background.repeat("looking", lambda: 1.0, fails)
        while work.failures_in_a_row < module.TROUBLE_AFTER:
            await turns(1)
        (trouble,) = background.troubles()
        assert trouble.startswith("keeping has failed")
        tables = {each.families[0].name: dict(each.rows) for each in background_figures(background)}
        assert tables["magnetar_background_failures_total"]['{work="keeping"}'] >= module.TROUBLE_AFTER
        await background.close()
        assert background.failing() == {}

    asyncio.run(main())


def test_a_cancellation_from_within_does_not_end_it(pauses: list[float]) -> None:
    rounds: list[int] = []

    async def work() -> None:
        rounds.append(1)
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        gone.cancel()
        await gone

    async def main() -> None:
        background = Background()
        background.repeat("waiting for another", lambda: 1.0, work)
        while len(rounds) < 3:
            await turns(1)
        await background.close()

    asyncio.run(main())


def test_what_is_done_once_is_logged_unless_it_is_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def fails(error: Exception) -> None:
        raise error

    async def main() -> None:
        background = Background()
        background.once("deletion of", fails(TopicNotFound("t")), about="t", answers=(TopicNotFound,))
        background.once("deletion of", fails(OSError("disk")), about="u", answers=(TopicNotFound,))
        await turns(3)
        assert background.failures == {"deletion of": 1}
        await background.close()

    asyncio.run(main())
    (record,) = [record for record in caplog.records if record.name == "magnetar.background"]
    assert record.getMessage() == "deletion of u failed: disk"


def test_an_end_takes_every_step_and_tells_of_all_that_failed() -> None:
    taken: list[str] = []

    def raises() -> None:
        taken.append("raises")
        raise PermissionError("one")

    async def raises_later() -> None:
        taken.append("raises later")
        raise ValueError("two")

    async def fine() -> None:
        taken.append("fine")

    steps = [("a", raises), ("b", raises_later), ("c", fine)]
    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(end_all("it", steps))
    assert taken == ["raises", "raises later", "fine"]
    assert [type(each) for each in caught.value.exceptions] == [PermissionError, ValueError]


def test_a_broker_ends_whole_whatever_one_part_raises(tmp_path: Path) -> None:
    async def main() -> None:
        service = BrokerService(settings(tmp_path))
        await service.start()
        await service.broker.create_topic("t", 1)

        async def refuses() -> None:
            raise PermissionError("a pin of somebody else")

        service.handlers[0].close = refuses  # type: ignore[method-assign]
        assert (tmp_path / ADDRESS_FILE).exists()
        with pytest.raises(ExceptionGroup):
            await service.close()
        assert not (tmp_path / ADDRESS_FILE).exists()
        again = BrokerService(settings(tmp_path))
        await again.start()  # the directory was let go of
        assert again.broker.get("t") is not None
        await again.close()

    asyncio.run(main())


def test_the_monitor_of_compactions_outlives_a_topic_that_cannot_be_looked_at() -> None:
    looks: list[str] = []

    class Broken:
        def all(self) -> list[object]:
            looks.append("pins")
            raise PermissionError("pins")

    async def main() -> None:
        background = Background()
        settings = SimpleNamespace(topics=SimpleNamespace(broker_service_compaction_monitor_interval_ms=0))
        logs = SimpleNamespace(open_logs=Broken())
        CompactionMonitor(cast(Any, logs), lambda: cast(Any, settings), background).start()
        task = "looking for topics past their compactionThreshold"
        while not background.failing().get(task):
            await turns(1)
        assert looks
        await background.close()

    asyncio.run(main())
