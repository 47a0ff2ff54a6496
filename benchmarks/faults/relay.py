"""Relays of TCP between clients and a server: what passes through one can be cut, held back, or made late.

They are a process of their own (this module, run as a program): all that a cluster says passes through them, and beside
the clients, which are threads of a test's, it would stand still whenever one of them keeps the interpreter.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import uvloop

from tests.cluster.servers import die_with_parent

_CHUNK = 1 << 16
_ROOT = Path(__file__).parents[2]


class Relays:
    """The process; whatever is asked of it is done when the call returns."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )
        self._lock = threading.Lock()

    def add(self, target: int, host: str = "127.0.0.1", port: int = 0) -> Relay:
        """Return a relay to a port of 127.0.0.1, from a port (a free one, if it is 0) of an address of loopback."""
        number, port = self.ask("add", target, host, port)
        return Relay(self, number, port)

    def ask(self, *what: object) -> Any:
        """Have the process do something; raise ``OSError`` with what it says if it cannot."""
        asks, answers = self._process.stdin, self._process.stdout
        assert asks is not None
        assert answers is not None
        with self._lock:
            asks.write(json.dumps(what) + "\n")
            asks.flush()
            answer = answers.readline()
        if not answer:
            raise OSError(f"the relays have ended with status {self._process.wait()}")
        done, value = json.loads(answer)
        if not done:
            raise OSError(value)
        return value

    def close(self) -> None:
        """End them all."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


class Relay:
    """One port that leads to another."""

    def __init__(self, relays: Relays, number: int, port: int) -> None:
        self.port = port
        self._number = number
        self._relays = relays

    def break_all(self) -> None:
        """Break what is connected; whoever connects anew may."""
        self._relays.ask("break_all", self._number)

    def cut(self) -> None:
        """Break what is connected, and let nobody in until `mend`."""
        self._relays.ask("cut", self._number)

    def hold(self) -> None:
        """Let no byte pass until `mend`, as a network does that drops all packets."""
        self._relays.ask("hold", self._number)

    def slow(self, seconds: float) -> None:
        """Let each read's worth of bytes, either way, pass so much later than the one before, until `mend`."""
        self._relays.ask("slow", self._number, seconds)

    def mend(self) -> None:
        """Let all pass again."""
        self._relays.ask("mend", self._number)


class _Link:
    """A relay, where it is done."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._flows = asyncio.Event()
        self._flows.set()
        self._refuses = False
        self._late_s = 0.0
        self._open: set[asyncio.StreamWriter] = set()

    async def listen(self, host: str, port: int) -> int:
        self._server = await asyncio.start_server(self._serve, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    def break_all(self) -> None:
        for each in list(self._open):
            each.transport.abort()

    def cut(self) -> None:
        self._refuses = True
        self.break_all()

    def hold(self) -> None:
        self._flows.clear()

    def slow(self, seconds: float) -> None:
        self._late_s = seconds

    def mend(self) -> None:
        self._refuses = False
        self._late_s = 0.0
        self._flows.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        there: asyncio.StreamWriter | None = None
        try:
            if self._refuses:
                return
            await self._flows.wait()
            back, there = await asyncio.open_connection("127.0.0.1", self._target)
            self._open.add(there)
            both = [
                asyncio.ensure_future(self._pass(reader, there)),
                asyncio.ensure_future(self._pass(back, writer)),
            ]
            _, rest = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for each in rest:
                each.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        except OSError:
            pass
        finally:
            for each in (writer, there):
                if each is not None:
                    self._open.discard(each)
                    each.transport.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(_CHUNK):
            await self._flows.wait()
            if self._late_s:
                await asyncio.sleep(self._late_s)
            writer.write(data)
            await writer.drain()


async def _carry_out() -> None:
    """Do what each line on standard input asks for, and say on standard output what came of it."""
    asks = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(asks), sys.stdin)
    links: list[_Link] = []

    async def add(target: int, host: str, port: int) -> tuple[int, int]:
        made = _Link(target)
        port = await made.listen(host, port)
        links.append(made)
        return len(links) - 1, port

    while line := await asks.readline():
        name, *given = json.loads(line)
        try:
            if name == "add":
                answer: tuple[bool, object] = True, await add(*given)
            else:
                number, *rest = given
                answer = True, getattr(links[number], name)(*rest)
        except OSError as error:
            answer = False, str(error)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    uvloop.run(_carry_out())
