"""What a client is the first to ask for is loaded beside the event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
from importlib import import_module
from pathlib import Path

import pytest

from magnetar.kafka import apart
from magnetar.kafka.apart import load_apart
from tests.admin.house import House

TOLD = "import threading\nTHREAD = threading.get_ident()\n"


async def test_modules_are_loaded_in_a_thread_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("seldom_one", "seldom_two"):
        (tmp_path / f"{name}.py").write_text(TOLD)
        monkeypatch.delitem(sys.modules, name, raising=False)
    await asyncio.gather(*(load_apart("seldom_one", "seldom_two") for _ in range(20)))
    for name in ("seldom_one", "seldom_two"):
        assert threading.get_ident() != import_module(name).THREAD
        del sys.modules[name]
    await load_apart("seldom_two")
    assert "seldom_two" not in sys.modules  # it is not asked for again


async def test_one_that_cannot_be_loaded_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError):
        await load_apart("seldom_three")
    (tmp_path / "seldom_three.py").write_text(TOLD)
    sys.path_importer_cache.clear()
    await load_apart("seldom_three")
    assert threading.get_ident() != sys.modules.pop("seldom_three").THREAD


async def test_crowds_that_are_first_to_ask_for_transactions_share_one_coordinator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart, "_loaded", set())
    async with House(tmp_path / "data") as house:
        lazy = house.services.transactions
        assert lazy.made is None
        found = await asyncio.gather(*(lazy.get() for _ in range(50)))
        assert {id(each) for each in found} == {id(lazy.made)}
        assert lazy.loading == 0
        assert await lazy.admission() is await lazy.admission()
