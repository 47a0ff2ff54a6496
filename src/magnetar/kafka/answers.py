"""The place of one request in the order of answers, and how its answer is written down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from magnetar.kafka.context import RequestContext
from magnetar.records.compression import Buffer
from magnetar.serving.eager import Eager
from magnetar.serving.pace import let_go
from magnetar.wire.kafka.header import RequestHeader, encode_response_header


class Answer:
    """The place of one request in the order of answers; ``parts`` are there once it is answered."""

    __slots__ = ("begun", "came_s", "context", "header", "parts", "request", "size", "translate")

    def __init__(
        self, header: RequestHeader, size: int, context: RequestContext | None, came_s: float = 0.0
    ) -> None:
        """``came_s`` is when the request was there to be begun, by the clock of `Serving`."""
        self.header = header
        self.came_s = came_s
        self.context = context
        self.size = size
        self.parts: Sequence[Buffer] | None = None
        self.request: Any = None
        """While it has many rows."""
        self.begun: Eager | asyncio.Task[None] | None = None
        self.translate: Callable[[Any], None] | None = None
        """Makes the names in a response those that the client knows."""

    @property
    def placed(self) -> bool:
        """Whether the next Produce may be begun: the batches of this one have their places in the logs."""
        return self.context is not None and self.context.placed

    def stop(self) -> None:
        """Give up what is being done for it."""
        if isinstance(self.begun, Eager):
            self.begun.stop()
        elif self.begun is not None:
            self.begun.cancel()

    def encoded(self, response: Any) -> Sequence[Buffer]:
        """Return a response's parts; none for acks=0, where the client wants no answer."""
        if response is None:
            return ()
        header = self.header
        head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
        if isinstance(response, bytes):  # a thread wrote it down
            return [head, response]
        if self.translate is not None:
            self.translate(response)
        return [head, *response.encode_parts(header.api_version)]

    async def encoded_apart(self, response: Any) -> bytes:
        """Return what `encoded` takes for the response, written down in a thread: it may have many rows."""
        written: bytes = await asyncio.get_running_loop().run_in_executor(None, self._written, response)
        return written

    def _written(self, response: Any) -> bytes:
        if self.translate is not None:
            self.translate(response)
        written: bytes = response.encode(self.header.api_version)
        let_go(response)
        request, self.request = self.request, None
        if request is not None:
            let_go(request)
        return written
