"""Groups of which all is asked are told of once, however often one request names them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar


class AskedGroup(Protocol):
    """A group in a request; without ``topics`` all that there is of it is asked for."""

    group_id: str
    topics: list[Any] | None


G = TypeVar("G", bound=AskedGroup)


def once(groups: Iterable[G]) -> Iterator[G]:
    """Yield those that ask for topics, and of those that ask for all the first of each group.

    A request of some MB would otherwise have an answer of some GB: as much as there is of a group, times 200,000.
    """
    told = set()
    for group in groups:
        if group.topics is None:
            if group.group_id in told:
                continue
            told.add(group.group_id)
        yield group
