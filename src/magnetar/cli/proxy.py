"""``magnetar proxy``: one address in front of a cluster, in the foreground."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from magnetar.base import logs
from magnetar.base.collector import Collector
from magnetar.base.errors import BrokerError, InvalidConfig
from magnetar.cli.limits import SWITCH_SECONDS, bound_allocator, raise_file_limit
from magnetar.cli.supervisor import tell_supervisor
from magnetar.node import setting_sources
from magnetar.proxy.service import ProxyService, ready_line
from magnetar.proxy.settings import ProxySettings
from magnetar.settings.settings import Settings

_LOOK_S = 60.0
_log = logging.getLogger("magnetar.proxy")


def run(config: Path | None, overrides: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; give the exit status. Prints one line once clients may connect."""
    import uvloop

    try:
        loaded = setting_sources.load(config, overrides, parts=(ProxySettings,))
    except BrokerError as error:
        return _complain(error, 2)
    logs.set_up(loaded.settings.node.log_level, loaded.settings.node.log_format)
    if warning := loaded.warning():
        _log.warning(warning)
    raise_file_limit()
    bound_allocator()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        uvloop.run(_serve(loaded.settings))
    except InvalidConfig as error:
        return _complain(error, 2)
    except (BrokerError, OSError) as error:
        return _complain(error, 1)
    return 0


async def _serve(settings: Settings) -> None:
    service = ProxyService(settings)
    await service.start()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    collector = Collector()
    thawing = asyncio.ensure_future(_thaw(collector))
    print(ready_line(service.served), flush=True)
    tell_supervisor()
    await stop.wait()
    thawing.cancel()
    service.close()
    await asyncio.sleep(0)  # what was written goes out


async def _thaw(collector: Collector) -> None:
    while True:
        await asyncio.sleep(_LOOK_S)
        await collector.thaw_when_quiet()


def _complain(error: Exception, status: int) -> int:
    print(f"magnetar: {error}", file=sys.stderr)
    if isinstance(error, InvalidConfig):
        print(
            "  -> docs/proxy.md tells of a first proxy, docs/configuration.md of every setting.",
            file=sys.stderr,
        )
    return status
