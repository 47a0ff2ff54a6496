"""What is done with messages that may have very many rows is done in threads, so that nobody else waits for it.

A hundred thousand rows take a tenth of a second to be read, as much to be cut by their leaders, to be joined, to be
written down and even to be let go of. Each of these is a plain function of messages here. With a handful of rows it is
called as it is; with more, the event loop goes on meanwhile. What others may change at the same time stays on the loop
and is gone through with `magnetar.serving.pace`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from magnetar.base.collector import uncollected
from magnetar.serving.pace import let_go

_MANY_BYTES = 16 << 10
T = TypeVar("T")


def may_have_many_rows(nbytes: int) -> bool:
    """Whether a message that takes so many bytes on the wire, and has no records, may have so many rows that others
    would wait."""
    return nbytes > _MANY_BYTES


class Apart:
    """Does the work of one request. What was made in threads is let go of in one at the end, some rows at a time:
    messages, lists, dictionaries and tuples of them. Nothing else may have those lists and dictionaries then.
    """

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: list[Any] = []

    async def do(self, has_many_rows: bool, work: Callable[..., T], *given: Any) -> T:
        """Return what ``work`` makes of what it is given."""
        if not has_many_rows:
            return work(*given)
        with uncollected():  # rows are no garbage
            made = await asyncio.get_running_loop().run_in_executor(None, work, *given)
        self._made.append(made)
        return made

    def keep(self, made: Any) -> None:
        """Have something with many rows let go of with the rest."""
        self._made.append(made)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._made:
            made, self._made = self._made, []
            asyncio.get_running_loop().run_in_executor(None, _let_go, made)


def _let_go(made: Any) -> None:
    if isinstance(made, dict):
        while made:
            _let_go(made.popitem()[1])
    elif isinstance(made, list):
        while made:
            _let_go(made.pop())
    elif isinstance(made, tuple):
        for each in made:
            _let_go(each)
    else:
        let_go(made)
