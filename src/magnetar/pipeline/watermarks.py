"""How far records are visible: a running broker says it; without one, all that is whole on disk is.

What lies in the files beyond the high watermark is not promised to survive yet, so nobody may see it. The broker is
asked as any client would ask, by the settings that reading through Fetch takes: those of a secured cluster mean the
same with a path and without.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from magnetar.client.cluster import EARLIEST, LATEST, Cluster
from magnetar.client.errors import ClientError
from magnetar.client.settings import settings_of
from magnetar.pipeline.options import TopicPartition
from magnetar.pipeline.port import Visible

_TIMEOUT_S = 10.0


class BrokerSilent(Exception):
    """A broker owns the data directory, but does not say how far its records are visible."""


def broker_address(data: Path) -> str | None:
    """Return the Kafka address of the broker that owns this data directory now, or None if none does."""
    if not _is_owned(data):
        return None
    try:
        return ",".join(json.loads((data / "broker.json").read_text())["kafka"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokerSilent(
            f"a broker owns {data}, but broker.json does not say where it listens: {error!r}"
        ) from None


def ask_broker(
    address: str,
    partitions: Iterable[TopicPartition],
    *,
    settings: Mapping[str, str] | None = None,
    read_committed: bool = False,
) -> dict[TopicPartition, Visible]:
    """Ask the broker how far each partition may be read; raise `BrokerSilent` if it does not say.

    ``settings`` are more of those that `magnetar.client.settings` reads; under ``read_committed`` an open transaction
    ends it.
    """
    asked = {(which.topic, which.partition) for which in partitions}
    if not asked:
        return {}
    named = settings_of({**(settings or {}), "bootstrap.servers": address})
    try:
        with Cluster(named) as cluster:
            firsts, nexts = (
                cluster.retrying(
                    partial(cluster.list_offsets, dict.fromkeys(asked, place), committed=read_committed),
                    timeout_s=_TIMEOUT_S,
                )
                for place in (EARLIEST, LATEST)
            )
    except ClientError as error:
        raise BrokerSilent(
            f"the broker at {address} does not say how far records are visible: {error}"
        ) from None
    return {TopicPartition(*each): Visible(firsts[each], nexts[each]) for each in asked}


def _is_owned(data: Path) -> bool:
    """Return whether a live process holds the directory's lock: the kernel knows, and a killed broker's is gone."""
    try:
        with (data / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
