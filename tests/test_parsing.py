"""Tests parse undisturbed by what is collected amid it."""

from __future__ import annotations

import ast
import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(ast.__file__).read_text()


class _ParsesAtItsEnd:
    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        ast.parse("1")


def _parse_deeper(frames: int) -> ast.Module:
    return _parse_deeper(frames - 1) if frames else ast.parse(SOURCE)


@pytest.fixture
def eager_collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    gc.set_threshold(50)
    yield
    gc.set_threshold(*thresholds)


@pytest.mark.usefixtures("eager_collector")
def test_garbage_that_parses_disturbs_no_parse() -> None:
    for frames in range(20):
        for _ in range(100):
            _ParsesAtItsEnd()
        assert _parse_deeper(frames).body
    assert gc.isenabled()


@pytest.mark.usefixtures("eager_collector")
def test_threads_that_parse_disturb_no_parse() -> None:
    failed: list[BaseException] = []

    def parse(frames: int) -> None:
        try:
            for _ in range(20):
                for _ in range(50):
                    _ParsesAtItsEnd()
                _parse_deeper(frames)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=parse, args=(frames,)) for frames in (0, 7, 20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert gc.isenabled()
