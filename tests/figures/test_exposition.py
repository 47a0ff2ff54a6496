"""The text that Prometheus reads, and that nobody waits while it is made."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from magnetar.auth import Access
from magnetar.figures import exposition
from magnetar.figures.exposition import exposed
from magnetar.figures.figures import (
    Family,
    Figures,
    FigureTable,
    Source,
    escaped,
    labelled,
    summarized,
    summary,
)
from magnetar.ledger.durations import MAX_RECENT, Durations
from tests.broker.both import both
from tests.figures.told import Told


def source(*tables: FigureTable | None) -> Source:
    def told(access: Access | None) -> Iterator[FigureTable | None]:
        yield from tables

    return told


async def text(figures: Figures) -> str:
    return b"".join([part async for part in exposed(figures, None)]).decode()


async def test_lines_of_a_name_stand_together_whoever_tells_them() -> None:
    figures, one, other = Figures(), Family("a", "gauge", "A\nb."), Family("b", "counter", "B.")
    figures.sources += [
        source(FigureTable((one, other), [("", 1, None), ('{x="1"}', 2.5, 3)]), None),
        source(FigureTable((one,), [('{x="2"}', 4)])),
    ]
    assert await text(figures) == (
        '# HELP a A\\nb.\n# TYPE a gauge\na 1\na{x="1"} 2.5\na{x="2"} 4\n# HELP b B.\n# TYPE b counter\nb{x="1"} 3\n'
    )


async def test_rows_are_written_and_taken_apart_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "SLICE_S", -1.0)
    figures, rows = Figures(), [(f'{{x="{number}"}}', number) for number in range(20_000)]
    figures.sources.append(source(FigureTable((Family("a", "gauge", "A."),), rows)))
    turns = [0, 0]
    counting = asyncio.ensure_future(_count(turns, rows))
    assert (await text(figures)).count("\n") == 20_002
    counting.cancel()
    assert rows == []
    assert min(turns) >= 99  # each of 200 rows


async def _count(turns: list[int], rows: list[tuple[str, int]]) -> None:
    """Count turns of the loop: those before rows are taken apart, and those after that has begun."""
    whole = len(rows)
    while True:
        turns[len(rows) < whole] += 1
        await asyncio.sleep(0)


async def test_a_source_that_fails_takes_none_of_the_others_along(caplog: pytest.LogCaptureFixture) -> None:
    def fails(access: Access | None) -> Iterator[FigureTable | None]:
        yield FigureTable((Family("half", "gauge", "Half."),), [("", 1)])
        raise ValueError("not today")

    figures = Figures()
    figures.sources += [fails, source(FigureTable((Family("whole", "gauge", "Whole."),), [("", 1)]))]
    assert "whole 1\n" in await text(figures)
    assert figures.failures == 1
    assert "not today" in caplog.text


def test_labels_are_read_back_as_they_were() -> None:
    odd = 'a\\b"c\nd{}=,'
    told = Told(f"# TYPE x gauge\nx{labelled(odd=odd, plain='p')} 1\n")
    assert told.of("x", odd=odd, plain="p") == 1
    assert escaped("plain") == "plain"
    assert labelled() == ""


def test_quantiles_are_those_of_the_last_times() -> None:
    durations = Durations()
    for number in range(3 * MAX_RECENT):
        durations.add(float(number))
    low, high = 2 * MAX_RECENT, 3 * MAX_RECENT
    assert durations.count == high
    assert durations.seconds == sum(range(high))
    assert durations.quantiles((0.0, 0.5, 0.999, 1.0)) == [low, low + 512, low + 1022, high - 1]
    rows = summarized(durations, 1000, request="Produce")
    families = summary("t", "Times.")
    assert len(families) == len(rows[0]) - 1
    assert rows[-1] == ('{request="Produce"}', None, high, sum(range(high)) * 1000)
    assert Durations().quantiles((0.5,)) == []


async def test_others_have_their_turn_however_many_topics_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time for a slice every step gives a turn: then steps are counted, whatever the machine does."""
    topics = 2000
    async with both() as house:
        for number in range(topics):
            await house.broker.create_topic(f"t{number}", 1)
        for number in range(0, topics, 100):
            assert (await house.kafka.produce(f"t{number}", b"x")).error_code == 0
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        monkeypatch.setattr(exposition, "SLICE_S", -1.0)
        counting = asyncio.ensure_future(others())
        lines = longest = 0
        async for part in exposed(house.broker.figures, None):
            lines += part.count(b"\n")
            longest = max(longest, len(part))
        counting.cancel()
        assert lines > topics
        assert turns > 2 * topics  # Kafka's topics, Pulsar's, then what is written
        assert longest < 128 << 10


async def test_counters_outlive_the_closing_of_a_log() -> None:
    async with both() as house:
        topic = await house.broker.create_topic("t", 1)
        assert (await house.kafka.produce("t", b"0", b"1")).error_code == 0
        logs = house.broker.logs.open_logs
        (held,) = logs.all()
        size = held.log.size()
        for _ in range(4):
            await house.kafka_services.partitions.let_go()
        assert logs.all() == []
        figures = logs.figures(topic, 0)
        assert figures is not None
        assert (figures.log, figures.messages_in) == (None, 2)
        assert figures.bounds == (0, 2, 2, size, 1, 0)
        assert (await house.kafka.produce("t", b"2")).error_code == 0
        assert figures.messages_in == 3
        assert figures.bounds.log_end_offset == 3


async def test_a_look_at_logs_leaves_none_open_but_those_that_somebody_took_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def not_now() -> None:
        """Others would close them a little later."""

    async with both() as house:
        topics = [await house.broker.create_topic(f"t{number}", 1) for number in range(3)]
        for number in range(3):
            assert (await house.kafka.produce(f"t{number}", b"0", b"1")).error_code == 0
        logs = house.broker.logs.open_logs
        for _ in range(4):
            await house.kafka_services.partitions.let_go()
        logs._figures.clear()  # as after a start
        monkeypatch.setattr(logs, "close_unheld", not_now)
        looking = asyncio.ensure_future(logs.look_at([(each, 0) for each in topics]))
        while len(logs.all()) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert (await house.kafka.produce("t1", b"2")).error_code == 0
        await looking
        assert [each.topic for each in logs.all()] == [topics[1]]
        ends = [logs.figures(each, 0).bounds.log_end_offset for each in topics]  # type: ignore[union-attr]
        assert ends == [2, 3, 2]
