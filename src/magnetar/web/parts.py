"""Applications below paths of their own next to a main one, each loaded by the first request for it.

Few operators open them, and templates and what renders these take longer to load than clients should wait for: a thread
loads them, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


class WebParts:
    """An application that leaves paths below ``/NAME`` to another one of that name, and ``/`` to one that is named."""

    def __init__(
        self, app: ASGIApp, parts: Mapping[str, Callable[[], ASGIApp]], root: str | None = None
    ) -> None:
        """``parts`` make each application, in a thread; ``root`` is the one that answers ``GET /``."""
        self._app = app
        self._parts = parts
        self._root = root
        self._loading: dict[str, asyncio.Task[ASGIApp]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        name = path[1:].partition("/")[0]
        if path == "/" and self._root is not None and scope["method"] in ("GET", "HEAD"):
            name = self._root
        app = await self._part(name) if name in self._parts else self._app
        await app(scope, receive, send)

    async def _part(self, name: str) -> ASGIApp:
        loading = self._loading.get(name)
        if loading is None:
            loading = asyncio.create_task(asyncio.to_thread(self._parts[name]))
            self._loading[name] = loading
        try:
            return await asyncio.shield(loading)
        except Exception:
            self._loading.pop(name, None)  # the next request tries again
            raise
