"""Raises the format of what is stored to that of this release, a step for each number, before anything else is read.

Each step may be done twice: a crash between a step and the note that it is done begins with the step again. Nothing
goes back: a store that a newer release has raised is refused by an older one (`magnetar.metadata.formats`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from magnetar import __version__
from magnetar.metadata import MUST_NOT_EXIST, BadVersion, MetadataStore, Put
from magnetar.metadata.formats import FORMAT, FORMAT_PATH, HISTORY, format_of, with_format

STEPS: Mapping[int, Callable[[MetadataStore], Awaitable[None]]] = {}
"""What is rewritten, by the format that it leads to; a format that only adds something needs no step."""
_OF_NEW_STORES = frozenset({"names-in-paths"})
"""What opening a store has written before this looks at it, below ``/magnetar``."""
_log = logging.getLogger("magnetar.broker")


async def upgrade(store: MetadataStore, where: str) -> int:
    """Raise the format to this release's, and return what it was; raise `NewerFormat` with nothing changed.

    ``where`` names the store in errors and in the log. Brokers of one cluster may do this at the same time.
    """
    stored = await store.get(FORMAT_PATH)
    before = found = format_of(None if stored is None else stored.value, where)
    is_new = stored is None and set(await store.children("/magnetar")) <= _OF_NEW_STORES
    while found < FORMAT:
        number = FORMAT if is_new else found + 1
        if number in STEPS and not is_new:
            await STEPS[number](store)
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        note = with_format(None if stored is None else stored.value, number, __version__, at)
        expected = MUST_NOT_EXIST if stored is None else stored.version
        try:
            await store.commit([Put(FORMAT_PATH, note, expected)])
        except BadVersion:  # another broker of the cluster was first
            stored = await store.get(FORMAT_PATH)
            found = format_of(None if stored is None else stored.value, where)
            continue
        stored = await store.get(FORMAT_PATH)
        found = number
        if not is_new:
            _log.info(
                "%s has format %d now, and no older release opens it: %s", where, number, HISTORY[number]
            )
    return before
