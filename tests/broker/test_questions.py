"""Questions that are gathered: one message is on its way to each, and everybody who asks is answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from magnetar.base.background import Background
from magnetar.base.errors import BrokerError
from magnetar.base.questions import Questions


class Answering:
    def __init__(self) -> None:
        self.messages: list[tuple[str, list[int]]] = []
        self.may_answer = asyncio.Event()
        self.error: BaseException | None = None

    async def send(self, to: str, whats: Sequence[int]) -> list[int]:
        self.messages.append((to, list(whats)))
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return [-what for what in whats]


async def test_one_message_is_on_its_way_to_each_and_the_next_takes_what_came_meanwhile() -> None:
    answering, background = Answering(), Background()
    questions = Questions(background, "asking", answering.send, 1000)
    asked = [asyncio.ensure_future(questions.ask("a", number)) for number in range(1)]
    other = asyncio.ensure_future(questions.ask("b", 7))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asked += [asyncio.ensure_future(questions.ask("a", number)) for number in range(1, 2500)]
    await asyncio.sleep(0)
    assert answering.messages == [("a", [0]), ("b", [7])]
    answering.may_answer.set()
    assert await asyncio.gather(*asked) == [-number for number in range(2500)]
    assert await other == -7
    assert [len(whats) for to, whats in answering.messages if to == "a"] == [1, 1000, 1000, 499]
    await background.close()


async def test_a_message_that_fails_is_told_to_all_in_it_and_the_next_is_sent() -> None:
    answering, background = Answering(), Background()
    questions = Questions(background, "asking", answering.send, 2)
    answering.error = BrokerError("gone")
    asked = [asyncio.ensure_future(questions.ask("a", number)) for number in range(3)]
    await asyncio.sleep(0)
    answering.may_answer.set()
    assert [str(each) for each in await asyncio.gather(*asked, return_exceptions=True)] == ["gone"] * 3
    answering.error = None
    assert await questions.ask("a", 5) == -5
    await background.close()


@pytest.mark.parametrize("ends", ["closed", "wrong"])
async def test_nobody_waits_for_good_whatever_the_end(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.base.background.GRACE_S", 0.01)
    answering, background = Answering(), Background()

    async def send(to: str, whats: Sequence[int]) -> list[int]:
        return (await answering.send(to, whats))[:-1]  # one answer is missing

    questions = Questions(background, "asking", send if ends == "wrong" else answering.send, 2)
    asked = [asyncio.ensure_future(questions.ask("a", number)) for number in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if ends == "wrong":
        answering.may_answer.set()
    else:
        background_ends = asyncio.ensure_future(background.close())
    told = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(each) for each in told] == [asyncio.CancelledError] * 3
    await (background.close() if ends == "wrong" else background_ends)
