"""What handlers offer each other: objects, found by their type.

A handler declares in `ProtocolHandler.offers` what it offers once it has started, and in `needs` which handlers start
before it. So two protocols meet in a type that a room below both of them defines, or that the one above imports.
"""

from __future__ import annotations

from typing import TypeVar, cast

from magnetar.base.errors import HandlerError

Offered = TypeVar("Offered")


class Offers:
    """The offers of one broker's handlers."""

    def __init__(self) -> None:
        self._by_type: dict[type, object] = {}

    def add(self, what: object) -> None:
        """Offer something; raise `HandlerError` if one of its type is offered already."""
        if type(what) in self._by_type:
            raise HandlerError(f"two handlers offer a {type(what).__name__}")
        self._by_type[type(what)] = what

    def find(self, kind: type[Offered]) -> Offered | None:
        """Return what is offered of this type, or None."""
        return cast("Offered | None", self._by_type.get(kind))

    def get(self, kind: type[Offered]) -> Offered:
        """Return what is offered of this type; raise `HandlerError` if no handler that has started offers it."""
        found = self.find(kind)
        if found is None:
            raise HandlerError(f"no handler that has started offers a {kind.__module__}.{kind.__name__}")
        return found
