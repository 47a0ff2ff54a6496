"""Checks that the runner itself calls: each ends well or says why not, and what it is about stands in its docstring."""

from __future__ import annotations

from collections.abc import Callable


def outcome(check: Callable[..., None], *arguments: object, of: str = "") -> dict[str, object]:
    """Call a check, print how it went, and give what is kept of it; ``of`` is whose it is."""
    try:
        check(*arguments)
        problem = ""
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    whose = f"{of:13} " if of else ""
    print(f"{'FAIL' if problem else 'ok  '} {whose}{check.__name__:16} {problem}", flush=True)
    return {"ok": not problem, "detail": problem, "meaning": " ".join((check.__doc__ or "").split())}
