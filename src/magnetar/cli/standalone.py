"""``magnetar standalone``: one broker in the foreground, on embedded storage."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.base import logs
from magnetar.base.errors import BrokerError, InvalidConfig
from magnetar.cli.limits import LOOK_EVERY_S, SWITCH_SECONDS, Spare, bound_allocator, raise_file_limit
from magnetar.cli.supervisor import tell_supervisor
from magnetar.ledger.errors import LedgerError, StorageFailed, StorageFull
from magnetar.metadata import DirectoryInUse, MetadataError, MetadataUnavailable, NewerFormat
from magnetar.node import setting_sources
from magnetar.serving.listeners import CannotListen, Listener
from magnetar.settings.settings import Settings

if TYPE_CHECKING:
    from magnetar.node.workers.place import WorkerPlace

STORAGE_FAILED = 74
"""The exit status where the disk failed for good while the broker served: EX_IOERR of sysexits.h."""
_log = logging.getLogger("magnetar.standalone")


def run(
    data: Path | None,
    kafka: str | None,
    pulsar: str | None,
    http: str | None,
    schema_registry: str | None,
    config: Path | None,
    overrides: Sequence[str],
    meant: Sequence[str] = (),
    workers: int | str | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; give the exit status. Prints one line once clients may connect.

    What ``meant`` names in the file has a meaning, though it is no setting.
    """
    given = list(overrides)
    places = {"--kafka": kafka, "--pulsar": pulsar, "--http": http, "--schema-registry": schema_registry}
    for option, place in places.items():
        if place is not None and not _is_place(place):
            _complain(InvalidConfig(f"{option} {place}: expected HOST:PORT, with a port from 0 to 65535"))
            return 2
    if data is not None:
        given.append(f"data.dir={data}")
    if kafka is not None:
        given.append(f"listeners=PLAINTEXT://{kafka}")
    if pulsar is not None:
        given.append(f"pulsar.listeners=pulsar://{pulsar}")
    if http is not None:
        given.append(f"http.listeners=http://{http}")
    if schema_registry is not None:
        given.append(f"schema.registry.listeners=http://{schema_registry}")
    if workers is not None:
        given.append(f"workers={workers}")
    try:
        loaded = setting_sources.load(config, given)
    except BrokerError as error:
        _complain(error)
        return 2
    logs.set_up(loaded.settings.node.log_level, loaded.settings.node.log_format)
    warning = replace(loaded, ignored=tuple(each for each in loaded.ignored if each not in meant)).warning()
    if warning:
        _log.warning(warning)
    told = loaded.settings.told
    told = replace(told, ignored=tuple(each for each in told.ignored if each not in meant))
    return serve(loaded.settings.with_told(told))


def _is_place(text: str) -> bool:
    host, separator, port = text.rpartition(":")
    return bool(host and separator) and port.isascii() and port.isdigit() and int(port) <= 65535


def serve(settings: Settings, worker: WorkerPlace | None = None) -> int:
    """Serve until SIGTERM or SIGINT; give the exit status. ``worker`` is the place of one of several."""
    raise_file_limit()
    try:
        if worker is None and settings.node.workers > 1:
            from magnetar.cli import workers

            return asyncio.run(workers.serve(settings))
        import uvloop

        bound_allocator()
        sys.setswitchinterval(SWITCH_SECONDS)
        if not uvloop.run(_serve(settings, worker)):
            print("magnetar: ended because its disk failed; the log tells what to do", file=sys.stderr)
            return STORAGE_FAILED
    except (BrokerError, LedgerError, MetadataError, OSError) as error:
        _complain(error)
        return 1
    except ExceptionGroup as error:  # each is in the log
        print(f"magnetar: {error.message}; the log tells what failed", file=sys.stderr)
        return 1
    return 0


_NEXT_STEPS: tuple[tuple[type[Exception], str], ...] = (
    (
        InvalidConfig,
        "'magnetar config settings' lists every setting with what it does; so does docs/configuration.md.",
    ),
    (
        CannotListen,
        "Choose another address with --kafka, --pulsar, --http or --schema-registry; 0 is any port.",
    ),
    (DirectoryInUse, "Stop that broker, or choose another directory with --data."),
    (OSError, "Choose a directory with --data that you may write, and leave its files to one user."),
    (StorageFailed, "Look at the disk, or at the service, that the line above names."),
    (
        MetadataUnavailable,
        "Look at the directory's rights and at the room on its disk, or whether ZooKeeper runs there.",
    ),
    (StorageFull, "Make room on the disk; nothing is lost."),
    (NewerFormat, "Install that release or a newer one; what is stored has not been changed."),
    (
        MetadataError,
        "'magnetar ledger verify --data DIRECTORY' tells what is damaged, and what to do about it.",
    ),
    (
        LedgerError,
        "'magnetar ledger verify --data DIRECTORY' tells what is damaged, and what to do about it.",
    ),
)


def _complain(error: Exception) -> None:
    """Say why the broker does not start, and what to do now."""
    told = (
        f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
    )
    if isinstance(error, FileExistsError | NotADirectoryError):
        told = f"{error.filename} is a file, or lies in one, and not a directory"
    print(f"magnetar: {told}", file=sys.stderr)
    next_step = getattr(error, "next_step", None) or next(
        (step for kind, step in _NEXT_STEPS if isinstance(error, kind)), ""
    )
    if next_step:
        print(f"  -> {next_step}", file=sys.stderr)


async def _serve(settings: Settings, worker: WorkerPlace | None) -> bool:
    """Serve until a signal or the disk ends it; tell whether the disk was well to the end."""
    from magnetar.base.collector import Collector
    from magnetar.node.service import BrokerService

    service = BrokerService(settings, worker=worker)
    await service.start()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    service.on_failed.append(stop.set)
    collector = Collector()
    service.broker.background.repeat("thawing garbage", lambda: 60.0, collector.thaw_when_quiet)
    service.broker.background.repeat("giving memory back", lambda: LOOK_EVERY_S, Spare().give_back_when_quiet)
    if worker is None:
        print(ready_line(service.served), flush=True)
        tell_supervisor()
    await stop.wait()
    try:
        await service.close()
    except ExceptionGroup:
        if service.broker.engine.failed is None:
            raise
    return service.broker.engine.failed is None


def ready_line(served: Mapping[str, Sequence[Listener]]) -> str:
    """Return the line that tells where clients may connect; several listeners are separated by commas."""
    words = [f"{name}={','.join(str(each.advertised) for each in served)}" for name, served in served.items()]
    return " ".join(["ready", *words])
