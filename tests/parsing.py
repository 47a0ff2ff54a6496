"""Python before 3.11.5 cannot parse within a parse: "AST constructor recursion depth mismatch" (CPython gh-106905).

How deep it is in a tree stands in one place for the whole interpreter. What reads or changes that amid another's tree
is garbage that is collected there: a finalizer runs Python, which parses (pytest does, for each module that is imported
late), or lets a thread run that does. Where nothing is collected, no Python runs amid a tree.
"""

from __future__ import annotations

import ast
import gc
import sys
import threading
from typing import Any

MENDED_IN = (3, 11, 5)

_parse = ast.parse
_turn = threading.RLock()


def parse_undisturbed(*args: Any, **kwargs: Any) -> Any:
    """Parse as ``ast.parse`` does, with nothing collected meanwhile."""
    with _turn:
        collects = gc.isenabled()
        gc.disable()
        try:
            return _parse(*args, **kwargs)
        finally:
            if collects:
                gc.enable()


def mend() -> None:
    """Have all of this process parse undisturbed, pytest and Hypothesis included, where Python needs it."""
    if sys.version_info < MENDED_IN:
        ast.parse = parse_undisturbed
