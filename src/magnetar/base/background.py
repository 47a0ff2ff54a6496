"""Work that nobody waits for: begun by name, seen when it fails, begun again, and ended together.

A task that nobody awaits keeps its exception to itself: what it did regularly is then never done again, and nobody is
told. So nothing in the broker begins one by itself. What is kept here is logged with its traceback when it fails, is
counted (``/metrics``), and is tried again after a pause that grows from `FIRST_PAUSE_S` to `LAST_PAUSE_S` for as long
as it goes on failing.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from magnetar.base.errors import ServedElsewhere
from magnetar.ledger.errors import LedgerError
from magnetar.metadata import MetadataError

FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 60.0
TROUBLE_AFTER = 3
"""So many failures in a row of essential work are told by health checks."""
_DISK_ERRORS = errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE
GRACE_S = 5.0
"""So long, in seconds, the end of the broker waits for what is done once."""

T = TypeVar("T")
Step = tuple[str, Callable[[], Awaitable[None] | None]]
_log = logging.getLogger("magnetar.background")


class Repeated:
    """Work that is done again and again until it is stopped; made by `Background.repeat`."""

    def __init__(
        self,
        name: str,
        pause: Callable[[], Awaitable[None]],
        work: Callable[[], Awaitable[None]],
        failed: Callable[[BaseException], None],
        *,
        essential: bool,
    ) -> None:
        self.name = name
        self.essential = essential
        self.failures_in_a_row = 0
        self.last_error = ""
        self._pause = pause
        self._work = work
        self._failed = failed
        self.task = asyncio.get_running_loop().create_task(self._run(), name=name)

    async def _run(self) -> None:
        while True:
            try:
                await self._pause()
                await self._work()
            except asyncio.CancelledError as error:
                if _is_asked_to_end():
                    raise
                failure: BaseException = error  # of something that the work waited for
            except Exception as error:
                failure = error
            else:
                self.failures_in_a_row = 0
                continue
            await self._wait_after(failure)

    async def _wait_after(self, failure: BaseException) -> None:
        self.failures_in_a_row += 1
        self.last_error = f"{type(failure).__name__}: {failure}"
        self._failed(failure)
        wait_s = min(FIRST_PAUSE_S * 2 ** min(self.failures_in_a_row - 1, 30), LAST_PAUSE_S)
        _log.error(
            "%s failed (%d in a row), and is tried again after %g s: %s",
            self.name, self.failures_in_a_row, wait_s, failure, exc_info=traced(failure),
        )  # fmt: skip
        await asyncio.sleep(wait_s)

    async def stop(self) -> None:
        """Return once it has ended; raises nothing of what ended it."""
        self.task.cancel()
        await asyncio.wait([self.task])


class Background:
    """What goes on in one broker beside its clients' requests."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        """How often each work has failed since the start, by its name."""
        self._repeated: dict[asyncio.Task[None], Repeated] = {}
        self._once: set[asyncio.Task[Any]] = set()

    def repeat(
        self,
        name: str,
        pause: Callable[[], float] | Callable[[], Awaitable[None]],
        work: Callable[[], Awaitable[None]],
        *,
        essential: bool = False,
    ) -> Repeated:
        """Return what does ``work`` after each ``pause`` (seconds, asked each time, or what waits itself) from now on.

        Where it is ``essential``, health checks tell when it goes on failing.
        """
        made = Repeated(name, _waiting(pause), work, lambda error: self._count(name), essential=essential)
        self._repeated[made.task] = made
        made.task.add_done_callback(lambda task: self._repeated.pop(task, None))
        self.failures[name] += 0
        return made

    def once(
        self,
        name: str,
        work: Coroutine[Any, Any, T],
        *,
        about: object = "",
        answers: tuple[type[Exception], ...] = (),
    ) -> asyncio.Task[T]:
        """Return the task that does ``work``; what it raises is logged whether or not somebody awaits it.

        Failures are counted by ``name``; ``about`` is for the log alone. ``answers`` are what it may raise as an
        answer to whoever awaits it.
        """
        task = asyncio.get_running_loop().create_task(work, name=f"{name} {about}".rstrip())
        self._once.add(task)

        def ended(task: asyncio.Task[T]) -> None:
            self._once.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None and not isinstance(error, answers):
                self._count(name)
                _log.error("%s failed: %s", task.get_name(), error, exc_info=traced(error))

        task.add_done_callback(ended)
        return task

    def _count(self, name: str) -> None:
        self.failures[name] += 1

    def failing(self) -> dict[str, int]:
        """Return how often in a row each repeated work has failed by now, by its name."""
        found: dict[str, int] = {}
        for each in self._repeated.values():
            found[each.name] = max(found.get(each.name, 0), each.failures_in_a_row)
        return found

    def troubles(self) -> list[str]:
        """Give, in words, which essential work goes on failing."""
        return [
            f"{each.name} has failed {each.failures_in_a_row} times in a row: {each.last_error}"
            for each in self._repeated.values()
            if each.essential and each.failures_in_a_row >= TROUBLE_AFTER
        ]

    async def close(self) -> None:
        """End everything; what is done once may take `GRACE_S` to finish. Raises nothing."""
        for task in self._repeated:
            task.cancel()
        if self._repeated:
            await asyncio.wait(list(self._repeated))
        if self._once:
            await asyncio.wait(self._once, timeout=GRACE_S)
        late = list(self._once)
        for task in late:
            _log.warning("%s had not finished at the end", task.get_name())
            task.cancel()
        if late:
            await asyncio.wait(late)


async def end_all(what: str, steps: Iterable[Step]) -> None:
    """Take every step of an end, whatever others raise; raise one ``ExceptionGroup`` of all of it afterwards."""
    errors: list[Exception] = []
    for name, step in steps:
        try:
            waits = step()
            if inspect.isawaitable(waits):
                await waits
        except Exception as error:
            _log.error("%s: %s could not be ended in order: %s", what, name, error, exc_info=traced(error))
            errors.append(error)
    if errors:
        raise ExceptionGroup(f"{what} did not end in order", errors)


def _waiting(pause: Callable[[], float] | Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    async def wait() -> None:
        length = pause()
        if isinstance(length, int | float):
            await asyncio.sleep(length)
        else:
            await length

    return wait


def traced(error: BaseException) -> BaseException | None:
    """Return what is to be logged with its traceback: not what is said in plain words of a disk or of an owner."""
    # Of a group, each error is logged by itself.
    is_told = isinstance(error, LedgerError | MetadataError | ServedElsewhere | ExceptionGroup)
    return None if is_told or (isinstance(error, OSError) and error.errno in _DISK_ERRORS) else error


def _is_asked_to_end() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
