"""Modules that few brokers need, loaded in a thread when a client first asks for what they do.

On the event loop it would hold up everybody for 10 to 20 ms, and on a busy machine for longer.
"""

from __future__ import annotations

import asyncio
from importlib import import_module

_loaded: set[str] = set()


async def load_apart(*modules: str) -> None:
    """Return once they are loaded, at once if they are; to import them takes no time then. It needs no task."""
    if _loaded.issuperset(modules):
        return
    await asyncio.get_running_loop().run_in_executor(None, _load, modules)
    _loaded.update(modules)


def _load(modules: tuple[str, ...]) -> None:
    for each in modules:
        import_module(each)
