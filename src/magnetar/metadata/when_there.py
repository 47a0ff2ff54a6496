"""What is kept in memory of a part of the metadata store, made once anything is stored there, or somebody asks for it:
a broker that has nothing of a kind goes without the modules that know it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from magnetar.metadata.cache import CacheFollower
from magnetar.metadata.ops import Stored

F = TypeVar("F", bound=CacheFollower)


class WhenThere(Generic[F]):
    """A `CacheFollower` in front of another, which ``make`` makes; its module is loaded by then, not before."""

    def __init__(self, root: str, make: Callable[[], F]) -> None:
        self.root = root
        self.made: F | None = None
        self._make = make
        self._learning: list[Callable[[F], None]] = []

    def then(self, learn: Callable[[F], None]) -> None:
        """Have somebody learn of it once it is made; at once, if it has been."""
        if self.made is not None:
            learn(self.made)
        else:
            self._learning.append(learn)

    def get(self) -> F:
        """Return it, with all that is stored."""
        if self.made is None:  # nothing is stored, or it would have been made
            self.made = self._make()
            assert self.made.root == self.root
            for learn in self._learning:
                learn(self.made)
        return self.made

    def known(self) -> Iterable[str]:
        return () if self.made is None else self.made.known()

    def apply(self, path: str, stored: Stored | None) -> None:
        if self.made is not None or (stored is not None and path != self.root):
            self.get().apply(path, stored)
