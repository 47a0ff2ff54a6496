"""Guesses hold up hardly anybody: slow hashes are worked out in turns, and for nobody who is not there."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from magnetar.auth import turns
from magnetar.auth.basic import Passwords, WrongPassword
from magnetar.auth.turns import MAX_WAITING, THREADS, PasswordTurns, TooManyWait


class Desk(Executor):
    """Turns whose tasks end when they are told to, in the order in which they were begun.

    No thread has a part in it: after some turns of the event loop all has come that comes, on the busiest machine.
    """

    def __init__(self) -> None:
        self.turns = PasswordTurns(self)
        self.begun: list[str] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self._at_work: deque[tuple[Future[Any], Any]] = deque()

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self._at_work.append((future, work(*arguments, **named)))
        return future

    def ask(self, user: str, address: str = "here") -> asyncio.Task[Any]:
        def work() -> str:
            self.begun.append(f"{user}@{address}")
            return user

        task = asyncio.ensure_future(self.turns.work(user, address, work))
        self.tasks.append(task)
        return task

    async def end(self, count: int) -> None:
        for _ in range(count):
            future, result = self._at_work.popleft()
            future.set_result(result)
            await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_a_user_that_is_guessed_at_has_one_thread_and_others_the_other() -> None:
    desk = Desk()
    for _ in range(MAX_WAITING):
        desk.ask("admin", "attacker")
    await desk.settle()
    carol = desk.ask("carol")
    await desk.settle()
    assert desk.begun == ["admin@attacker", "carol@here"]
    await desk.end(2)
    assert carol.done()
    await desk.close()


async def test_each_address_has_its_turn_for_one_user() -> None:
    desk = Desk()
    for _ in range(MAX_WAITING):
        desk.ask("admin", "attacker")
    await desk.settle()
    desk.ask("admin", "honest")
    await desk.end(2)
    assert desk.begun == ["admin@attacker", "admin@attacker", "admin@honest"]
    await desk.close()


async def test_many_users_that_are_guessed_at_share() -> None:
    desk = Desk()
    for number in range(6):
        for _ in range(4):
            desk.ask(f"user-{number}", "attacker")
    await desk.settle()
    assert len(desk.begun) == THREADS
    desk.ask("carol")
    await desk.end(7)
    assert "carol@here" in desk.begun, "after one of each who were there before"
    assert len(desk.begun) == THREADS + 7
    await desk.close()


async def test_no_more_wait_than_are_answered_in_time() -> None:
    desk = Desk()
    waiting = [desk.ask("admin") for _ in range(MAX_WAITING + 5)]
    await desk.settle()
    refused = [task for task in waiting if task.done()]
    assert len(refused) == 4  # one is at work, and so many wait
    assert all(isinstance(task.exception(), TooManyWait) for task in refused)
    waiting[3].cancel()
    await desk.settle()
    another = desk.ask("admin")
    await desk.settle()
    assert not another.done(), "who has left makes room"
    await desk.close()


async def test_who_comes_while_all_threads_work_waits_among_those_who_are_counted() -> None:
    desk = Desk()
    for number in range(THREADS):
        desk.ask(f"user-{number}")
    await desk.settle()
    late = [desk.ask("late") for _ in range(MAX_WAITING + 1)]
    await desk.settle()
    assert [task.done() for task in late] == [False] * MAX_WAITING + [True]
    assert isinstance(late[-1].exception(), TooManyWait)
    await desk.close()


async def test_the_last_of_an_address_to_leave_holds_up_nobody() -> None:
    desk = Desk()
    desk.ask("admin", "first")
    await desk.settle()
    leaving = desk.ask("admin", "second")
    desk.ask("admin", "third")
    await desk.settle()
    leaving.cancel()
    await desk.end(2)
    assert desk.begun == ["admin@first", "admin@third"]
    await desk.close()


async def test_nothing_is_worked_out_for_users_that_there_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode().replace("$2b$", "$2y$")
    (tmp_path / "users").write_text(f"alice:{stored}\n")
    passwords = Passwords(f"file://{tmp_path}/users")
    checked: list[str] = []
    check = passwords.check

    def counted(said: str) -> str:
        checked.append(said)
        return check(said)

    monkeypatch.setattr(passwords, "check", counted)
    assert await passwords.prove("alice:secret") == "alice"
    guesses = [passwords.prove(f"made-up-{number}:x", "attacker") for number in range(60)]
    found = await asyncio.gather(*guesses, return_exceptions=True)
    assert all(isinstance(each, WrongPassword) for each in found)
    assert checked == ["alice:secret"]
    with pytest.raises(WrongPassword):
        await passwords.prove("alice:wrong")
    assert await passwords.prove("alice:secret") == "alice", "remembered"
    assert checked == ["alice:secret", "alice:wrong"]


async def test_the_first_of_whom_there_is_not_takes_as_long_as_one_of_whom_there_is(tmp_path: Path) -> None:
    stored = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode().replace("$2b$", "$2y$")
    (tmp_path / "users").write_text(f"alice:{stored}\n")
    passwords = Passwords(f"file://{tmp_path}/users")
    with pytest.raises(WrongPassword, match="unknown user 'nobody'"):
        await passwords.prove("nobody:x")
    assert passwords._check_s > 0


async def test_addresses_that_are_refused_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MAX_ADDRESSES", 2)
    desk = Desk()
    desk.ask("admin", "at work")
    await desk.settle()
    waiting = [desk.ask("admin", f"address {number}") for number in range(6)]
    await desk.settle()
    assert [isinstance(task.exception(), TooManyWait) for task in waiting if task.done()] == [True] * 4
    assert list(desk.turns._waiting["admin"]) == ["address 0", "address 1"]
    await desk.end(3)
    assert desk.begun == ["admin@at work", "admin@address 0", "admin@address 1"]
    assert [await task for task in waiting[:2]] == ["admin", "admin"]
    await desk.close()
