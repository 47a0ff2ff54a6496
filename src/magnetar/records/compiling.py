"""Functions compiled by numba, whose machine code is kept from one process to the next: see `kept_code`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numba

from magnetar.records.kept_code import directory

_Function = TypeVar("_Function", bound=Callable[..., Any])


def compiled(signature: Any) -> Callable[[_Function], _Function]:
    """Compile a function for one signature now, or load what an earlier process compiled."""
    compiler = numba.njit(signature, cache=True, nogil=True, error_model="numpy")

    def decorate(function: _Function) -> _Function:
        with _cached_here():
            made: _Function = compiler(function)
        return made

    return decorate


@contextlib.contextmanager
def _cached_here() -> Iterator[None]:
    """Have numba use our directory meanwhile: what others compile in this process stays where they want it."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(directory())
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before
