"""Making a ``NamedTuple`` without Python's own function for it, where one is made of every batch or entry.

Each class has a ``__new__`` that is a Python function of named arguments: to call it takes twice as long as to make the
tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T", bound=tuple[Any, ...])


def maker(kind: type[T]) -> Callable[[Iterable[Any]], T]:
    """Return what makes a ``kind`` of all its fields, in their order; nobody counts them, nor fills in defaults."""
    return partial(tuple.__new__, kind)
