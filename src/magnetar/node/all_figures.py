"""The figures of all workers of one data directory, told at the address that they share: each line says whose it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from time import perf_counter
from typing import TYPE_CHECKING

from magnetar.auth import Principal
from magnetar.base.slices import SLICE_S
from magnetar.cluster.peers import PeerFailed, Peers
from magnetar.figures.exposition import exposed
from magnetar.node.process_figures import ProcessFigures

if TYPE_CHECKING:
    from magnetar.node.broker import Broker

QUESTION = "figures"
_LINES_AT_ONCE = 100


def answer_others(broker: Broker, peers: Peers) -> None:
    """Have other workers told this one's figures."""

    async def figures(asked: bytes) -> bytes:
        return b"".join([part async for part in _own(broker, asked)])

    peers.answers[QUESTION] = figures


async def of_all_workers(broker: Broker, asker: Principal | None) -> AsyncIterator[bytes]:
    """Yield the text of all workers in parts, by family; one that does not answer is left out.

    ``asker`` is who asks, None for somebody who may see everything.
    """
    peers = broker.cluster.peers
    assert peers is not None
    asked = b"" if asker is None else json.dumps([asker.role, asker.proxy]).encode()
    nodes = sorted(each.node_id for each in broker.cluster.ownership.brokers())
    texts = await asyncio.gather(*(_text_of(broker, node, asked) for node in nodes))
    families: dict[str, list[str]] = {}
    heads: dict[str, list[str]] = {}
    began = perf_counter()
    for node, text in zip(nodes, texts, strict=True):
        family = ""
        for count, line in enumerate(text.decode().splitlines()):
            if line.startswith("# "):
                family = line.split(" ", 3)[2]
                head = heads.setdefault(family, [])
                if line not in head and len(head) < 2:
                    head.append(line)
            elif line:
                families.setdefault(family, []).append(_labelled(line, node))
            if not count % _LINES_AT_ONCE and perf_counter() - began > SLICE_S:
                await asyncio.sleep(0)
                began = perf_counter()
    for family, head in heads.items():
        lines = families.get(family, [])
        for at in range(0, max(len(lines), 1), _LINES_AT_ONCE):
            some = [*(head if not at else ()), *lines[at : at + _LINES_AT_ONCE]]
            yield ("\n".join(some) + "\n").encode()
            await asyncio.sleep(0)


async def _text_of(broker: Broker, node_id: int, asked: bytes) -> bytes:
    peers = broker.cluster.peers
    assert peers is not None
    if node_id == peers.node_id:
        return b"".join([part async for part in _own(broker, asked)])
    try:
        return await peers.ask(node_id, QUESTION, asked)
    except PeerFailed:
        return b""  # it is being begun again


def _own(broker: Broker, asked: bytes) -> AsyncIterator[bytes]:
    access = None
    if asked:
        role, proxy = json.loads(asked)
        access = broker.security.authorization.access_of(Principal(role, "", proxy=proxy))
    return exposed(broker.figures, access, ProcessFigures(broker))


def _labelled(line: str, node_id: int) -> str:
    """Return a line with one more label, the number of the worker that it is of."""
    name, brace, rest = line.partition("{")
    if brace and " " not in name:
        return f'{name}{{worker="{node_id}",{rest}'
    name, _, value = line.partition(" ")
    return f'{name}{{worker="{node_id}"}} {value}'
