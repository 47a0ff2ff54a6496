"""Programs of tests, which a test may end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence


def outcomes_of(
    tests: Sequence[str], program: Callable[[list[str]], Iterator[tuple[str, str, str]]]
) -> Iterator[tuple[str, str, str]]:
    """Give (test, outcome, why) for each, as ``program`` tells of those that it is asked for.

    What it has not told of when it ends is asked of another one, until one tells of nothing.
    """
    waiting = dict.fromkeys(tests)
    while waiting:
        before = len(waiting)
        for test, outcome, why in program(list(waiting)):
            if test in waiting:
                del waiting[test]
                yield test, outcome, why
        if len(waiting) == before:
            return
