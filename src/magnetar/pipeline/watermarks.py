"""How far records are visible: a running broker says it; without one, all that is whole on disk is.

What lies in the files beyond the high watermark is not promised to survive yet, so nobody may see it. The broker is
asked as any client would ask, through Kafka's own client library; this module is the only place where the driver
talks to anybody.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from magnetar.pipeline.options import TopicPartition

_TIMEOUT_S = 10.0


class Visible(NamedTuple):
    """The offsets that may be read: ``[first, next)``."""

    first: int
    next: int


class BrokerSilent(Exception):
    """A broker owns the data directory, but does not say how far its records are visible."""


def broker_address(data: Path) -> str | None:
    """Give the Kafka address of the broker that owns this data directory now, or None if none does."""
    if not _is_owned(data):
        return None
    try:
        return ",".join(json.loads((data / "broker.json").read_text())["kafka"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BrokerSilent(
            f"a broker owns {data}, but broker.json does not say where it listens: {error!r}"
        ) from None


def ask_broker(address: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Visible]:
    """Ask the broker how far each partition may be read; raise `BrokerSilent` if it does not say."""
    try:
        from confluent_kafka import IsolationLevel, KafkaException
        from confluent_kafka import TopicPartition as Asked
        from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
    except ImportError:
        raise BrokerSilent(
            f"to read beside the running broker at {address}, install confluent-kafka"
        ) from None
    asked = {which: Asked(which.topic, which.partition) for which in partitions}
    if not asked:
        return {}
    client = AdminClient({"bootstrap.servers": address, "log_level": 0})
    ends = []
    try:
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):  # type: ignore[no-untyped-call]
            answers = client.list_offsets(
                dict.fromkeys(asked.values(), spec),
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=_TIMEOUT_S,
            )
            ends.append(
                {(a.topic, a.partition): answer.result(_TIMEOUT_S).offset for a, answer in answers.items()}
            )
    except (KafkaException, TimeoutError) as error:
        raise BrokerSilent(
            f"the broker at {address} does not say how far records are visible: {error}"
        ) from None
    return {which: Visible(ends[0][which], ends[1][which]) for which in asked}


def _is_owned(data: Path) -> bool:
    """Tell whether a live process holds the directory's lock: the kernel knows, and a killed broker's is gone."""
    try:
        with (data / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
