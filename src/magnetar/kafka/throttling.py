"""One request of a client that may have quotas: what it took is counted, and its client waits if that was too much.

As in KIP-219 the answer goes out at once and says how long, and then nothing more of the connection is taken up for so
long. This is wrapped around handlers, which know nothing of it; but Fetch answers with nothing where its client has to
wait, and what makes and deletes topics has a quota of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from magnetar.wire.kafka.messages import ApiKey

if TYPE_CHECKING:
    from magnetar.kafka.context import RequestContext

PRODUCE = ApiKey.PRODUCE
_EXEMPT = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.WRITE_TXN_MARKERS})
"""Who is not known yet waits by other means, and brokers' own requests never do."""


class Timed:
    """A coroutine, and how long it kept the event loop. What is done for it elsewhere meanwhile does not count."""

    __slots__ = ("_clock", "_coroutine", "seconds")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], clock: Callable[[], float]) -> None:
        self._coroutine = coroutine
        self._clock = clock
        self.seconds = 0.0

    def __await__(self) -> Generator[Any, Any, Any]:
        step: Callable[[], Any] = partial(self._coroutine.send, None)
        while True:
            began = self._clock()
            try:
                waits_for = step()
            except StopIteration as ended:
                return ended.value
            finally:
                self.seconds += self._clock() - began
            try:
                yield waits_for
            except BaseException as error:  # it is cancelled, or given up
                step = partial(self._coroutine.throw, error)
            else:
                step = partial(self._coroutine.send, None)


async def throttled(
    coroutine: Coroutine[Any, Any, Any],
    context: RequestContext,
    api_key: int,
    nbytes: int,
    mute: Callable[[int], None],
) -> Any:
    """Return a handler's response to a request of so many bytes, which tells how long its client has to wait.

    ``mute`` is called with that, in ms, if it is more than 0.
    """
    if context.is_stranger or api_key in _EXEMPT:
        return await coroutine
    quotas, who = context.kafka.quotas.get(), context.who
    timed = Timed(coroutine, quotas.clock)
    response = await timed
    wait_ms = getattr(response, "throttle_time_ms", 0)
    if api_key == PRODUCE:
        wait_ms = max(wait_ms, quotas.produced(who, nbytes))
    if response is not None:  # with acks=0 nobody is told, and Kafka does not count the time
        wait_ms = max(wait_ms, quotas.took(who, timed.seconds))
    if wait_ms > 0:
        if hasattr(response, "throttle_time_ms"):  # that of DescribeQuorum cannot tell
            response.throttle_time_ms = wait_ms
        mute(wait_ms)
    return response
