"""Which APIs connected clients use, and in which versions: what a release with higher minimum versions would cut off.

Each connection of one software shares one table, which lives as long as any of them.
"""

from __future__ import annotations

from weakref import WeakValueDictionary


class AskedVersions(dict[int, int]):
    """By the key of an API the lowest version that connected clients of one software asked for."""

    __slots__ = ("__weakref__",)


NOTHING_ASKED = AskedVersions()
"""Of a connection that has asked nothing yet; nothing is ever added to it."""


class Clients:
    """By name and version of the clients' software."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[tuple[str, str], AskedVersions] = WeakValueDictionary()

    def asked_by(self, name: str, version: str) -> AskedVersions:
        """Return the table of a software, which its connections hold."""
        found = self._known.get((name, version))
        if found is None:
            found = self._known[name, version] = AskedVersions()
        return found
