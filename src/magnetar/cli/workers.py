"""``magnetar standalone --workers N``: several processes serve one data directory, and this one looks after them."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from magnetar.admin.address import SOCKET, listening
from magnetar.base.errors import InvalidConfig
from magnetar.cli.supervisor import tell_supervisor
from magnetar.metadata.lock import DirectoryLock
from magnetar.node.workers.doors import Doors, wanted_by_handlers
from magnetar.node.workers.supervisor import Supervisor
from magnetar.settings.settings import Settings


def check(settings: Settings) -> None:
    """Raise `InvalidConfig` where several workers cannot do what the settings ask for."""
    node = settings.node
    for name, url, only in (
        ("metadata.url", node.metadata_url, "sqlite:"),
        ("storage.url", node.storage_url, "files:"),
    ):
        if url != only:
            raise InvalidConfig(
                f"workers={node.workers} share {name}={only}, and not {url}: a cluster's brokers are started one by one"
            )


async def serve(settings: Settings) -> int:
    """Look after workers until a signal comes, or the disk has failed; return the exit status."""
    check(settings)
    wanted = wanted_by_handlers(settings)
    root = Path(settings.node.data_dir).absolute()
    lock, doors = DirectoryLock(root), Doors()
    try:
        for protocol, listeners in wanted.items():
            for each in listeners:
                doors.open(protocol, each, settings.node.workers, settings)
        with listening(root / SOCKET) as questions:
            supervisor = Supervisor(settings, doors, questions, lock)
            loop = asyncio.get_running_loop()
            stopping: list[asyncio.Task[None]] = []
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(
                    number, lambda: stopping.append(asyncio.ensure_future(supervisor.stop()))
                )
            try:
                await supervisor.start()
                if not supervisor.is_stopping:
                    words = [f"{name}={','.join(told)}" for name, told in doors.served.items()]
                    print(" ".join(["ready", *words]), flush=True)
                    tell_supervisor()
                await supervisor.ended()
            finally:
                await supervisor.close()
        return supervisor.status
    finally:
        doors.close()
        lock.release()
