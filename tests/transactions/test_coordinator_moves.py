"""A transaction whose coordinator is lost while it is ended: whoever has it next ends it, and nobody forgets it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from magnetar.base import retries
from magnetar.base.background import Background
from magnetar.cluster.ownership import Owned
from magnetar.coordination.log import MemoryOffsetsLog
from magnetar.coordination.transaction_sides import PulsarTransactions
from magnetar.coordination.transactions import TxnId
from magnetar.kafka.settings import KafkaSettings
from magnetar.kafka.transactions.coordinator import TransactionCoordinator
from magnetar.kafka.transactions.decider import ProducerIdAndEpoch
from magnetar.kafka.transactions.markers import Markers
from magnetar.kafka.transactions.metadata import State, TransactionPartition
from magnetar.logs.producers import EndTransactionMarker, InvalidProducerEpoch, MarkerFenced
from magnetar.wire.kafka.errors import ErrorCode

WHERE = TransactionPartition("t", 3)
FENCED = MarkerFenced("the coordinator is at epoch 8, not 7")


class MovingLog(MemoryOffsetsLog):
    """This broker has it since an epoch, or (None) has it not."""

    epoch: int | None = 7

    def owner(self, partition: int) -> Owned | None:
        return None if self.epoch is None else Owned(1, self.epoch)

    def is_mine(self, partition: int) -> bool:
        return self.epoch is not None


class Paper:
    """Takes down markers; they are durable once they may be."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.faults: list[Exception] = []
        self.open = asyncio.Event()
        self.open.set()

    async def write_all(
        self,
        marker: EndTransactionMarker,
        partitions: Iterable[TransactionPartition],
        transactional_id: str,
    ) -> None:
        self.epochs.append(marker.coordinator_epoch)
        if self.faults:
            raise self.faults.pop(0)
        await self.open.wait()


@pytest.fixture
def log() -> MovingLog:
    return MovingLog(1)


@pytest.fixture
def paper() -> Paper:
    return Paper()


@pytest.fixture
async def transactions(log: MovingLog, paper: Paper) -> AsyncIterator[TransactionCoordinator]:
    async def new_id() -> int:
        return 1000

    background = Background()
    made = TransactionCoordinator(log, KafkaSettings(), new_id, cast(Any, paper), background, lambda: 0)
    await made.start()
    await made.loaded()
    yield made
    paper.open.set()
    await made.close()


async def opened(transactions: TransactionCoordinator) -> ProducerIdAndEpoch:
    answer = await transactions.init_producer_id("x", 60_000, None)
    assert answer.producer is not None
    await transactions.add_partitions("x", answer.producer, frozenset([WHERE]), 1)
    return answer.producer


async def until_written(paper: Paper, count: int) -> None:
    async with asyncio.timeout(60):
        while len(paper.epochs) < count:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)


async def test_markers_bear_the_epoch_in_which_it_was_had_also_when_it_is_lost(
    transactions: TransactionCoordinator, log: MovingLog, paper: Paper
) -> None:
    """They bore epoch 0, were refused as too old, and taken for written."""
    producer = await opened(transactions)
    log.epoch = None  # its session is lost, and nobody has told the coordinator
    await transactions.end("x", producer, committed=True, version=1)
    await until_written(paper, 1)
    assert paper.epochs == [7]


async def test_what_went_and_came_back_is_loaded_anew_and_ends_its_transactions_again(
    transactions: TransactionCoordinator, log: MovingLog, paper: Paper
) -> None:
    producer = await opened(transactions)
    paper.open.clear()
    await transactions.end("x", producer, committed=True, version=1)
    await until_written(paper, 1)
    log.epoch = 9
    await transactions.follow_ownership()
    await transactions.loaded()
    await until_written(paper, 2)
    assert paper.epochs == [7, 9]
    assert transactions.describe("x").state is State.PREPARE_COMMIT
    paper.open.set()
    async with asyncio.timeout(60):
        while transactions.describe("x").state is not State.COMPLETE_COMMIT:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
    await transactions.follow_ownership()
    assert paper.epochs == [7, 9], "as long as nothing moves, nothing is loaded anew"


async def test_what_fails_unforeseen_is_told_and_done_all_the_same(
    transactions: TransactionCoordinator, paper: Paper, caplog: pytest.LogCaptureFixture
) -> None:
    """It stayed prepared, with no line in the log, until its partition was loaded again."""
    producer = await opened(transactions)
    paper.faults = [KeyError("nobody foresaw")]
    await transactions.end("x", producer, committed=True, version=1)
    async with asyncio.timeout(60):
        while transactions.describe("x").state is not State.COMPLETE_COMMIT:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
    assert paper.epochs == [7, 7]
    (line,) = caplog.records
    assert line.levelname == "ERROR"
    assert "transaction 'x' is decided" in line.getMessage()
    assert "restart the broker" in line.getMessage()
    assert line.exc_info is not None, "with its traceback"
    await transactions.add_partitions("x", producer, frozenset([WHERE]), 1)  # its producer goes on


async def test_what_goes_on_failing_is_tried_ever_more_seldom_and_given_up_with_the_partition(
    transactions: TransactionCoordinator,
    log: MovingLog,
    paper: Paper,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    async def sleep(wait_s: float) -> None:
        slept.append(wait_s)
        await (asyncio.Event().wait() if len(slept) == 40 else real_sleep(0))

    real_sleep = asyncio.sleep
    monkeypatch.setattr(retries, "asyncio", SimpleNamespace(sleep=sleep))
    producer = await opened(transactions)
    paper.faults = [KeyError("nobody foresaw")] * 100
    await transactions.end("x", producer, committed=True, version=1)
    await until_written(paper, 40)
    assert slept == [*retries.PAUSES_S, *[retries.PAUSES_S[-1]] * 36]
    assert len(caplog.records) == 6, "told at the tries 1, 2, 4, 8, 16 and 32"
    log.epoch = None
    await transactions.follow_ownership()
    for _ in range(100):
        await real_sleep(0)
    assert len(paper.epochs) == 40
    assert not [each for each in asyncio.all_tasks() if "carrying out" in each.get_name()]


class House:
    """A broker that has all partitions, or none; each marker meets what is to come of it."""

    def __init__(self, node_id: int, outcomes: list[Any]) -> None:
        self.outcomes = outcomes
        name = SimpleNamespace(name="t", internal=False)
        ownership = SimpleNamespace(node_id=1, owner=lambda name, partition: Owned(node_id, 7))
        broker = SimpleNamespace(
            background=Background(), cluster=SimpleNamespace(ownership=ownership), topic=lambda topic: name
        )
        self.markers = Markers(cast(Any, broker), cast(Any, self), cast(Any, None), cast(Any, self))

    # As the partitions of this broker.

    @asynccontextmanager
    async def lent(self, topic: Any, index: int) -> AsyncIterator[House]:
        yield self

    async def may_end_transactions(self) -> None:
        pass

    def end_transaction(self, marker: EndTransactionMarker) -> None:
        outcome = self.outcomes.pop(0)
        if outcome is not None:
            raise outcome

    # As the other brokers.

    async def ask(self, node_id: int, request: Any) -> Any:
        row = SimpleNamespace(partitions=[SimpleNamespace(error_code=self.outcomes.pop(0))])
        return SimpleNamespace(markers=[SimpleNamespace(topics=[row])])


@pytest.mark.parametrize(
    ("node_id", "outcomes", "left"),
    [
        (1, [FENCED, FENCED, None, "no more"], 1),
        (1, [InvalidProducerEpoch("older"), "a newer one has ended it"], 1),
        (2, [ErrorCode.TRANSACTION_COORDINATOR_FENCED] * 2 + [ErrorCode.NONE, "no more"], 1),
        (2, [ErrorCode.INVALID_PRODUCER_EPOCH, "a newer one has ended it"], 1),
        (1, [KeyError("nobody foresaw"), None, "no more"], 1),
    ],
)
async def test_a_marker_that_a_newer_coordinator_fenced_is_not_taken_for_written(
    node_id: int, outcomes: list[Any], left: int
) -> None:
    house = House(node_id, list(outcomes))
    marker = EndTransactionMarker(1000, 0, committed=True, coordinator_epoch=7)
    await house.markers.write_all(marker, [WHERE])
    assert len(house.outcomes) == left


async def test_so_is_what_fails_unforeseen_in_a_transaction_of_pulsars(
    log: MovingLog, paper: Paper, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes: list[Any] = [KeyError("nobody foresaw"), None, KeyError("nor that"), None]

    class Subscriptions:
        """Where it is ended; that all is kept is told later."""

        async def end(self, txn: TxnId, **what: Any) -> asyncio.Future[None]:
            outcome, kept = outcomes.pop(0), asyncio.get_running_loop().create_future()
            if outcome is not None:
                raise outcome
            if len(outcomes) == 2:
                kept.set_exception(outcomes.pop(0))
            else:
                kept.set_result(None)
            return kept

    async def new_id() -> int:
        return 1000

    meeting = PulsarTransactions()
    meeting.join(lambda: cast(Any, Subscriptions()))
    made = TransactionCoordinator(
        log, KafkaSettings(), new_id, cast(Any, paper), Background(), lambda: 0, meeting
    )
    await made.start()
    await made.loaded()
    pulsars = made.of_pulsar()
    txn = await pulsars.begin(0, 60_000, "", 0)
    await pulsars.end(txn, committed=True)
    async with asyncio.timeout(60):
        while outcomes or pulsars.all(0):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.005)
    assert [each.getMessage().split(" is decided")[0] for each in caplog.records] == [
        f"transaction '{txn}'"
    ] * 2
    await made.close()


async def test_who_waits_for_pulsars_side_may_give_up_meanwhile() -> None:
    """A coordinator that is moved away while the broker starts; the others that wait go on."""
    meeting = PulsarTransactions()
    waiting = [asyncio.ensure_future(meeting.participants()) for _ in range(2)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.wait(waiting[:1])
    there = cast(Any, object())
    meeting.join(lambda: there)
    assert await waiting[1] is there
    assert await meeting.participants() is there
