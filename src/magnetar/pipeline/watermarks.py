"""How far records are visible: a running broker says it; without one, all that is whole on disk is.

What lies in the files beyond the high watermark is not promised to survive yet, so nobody may see it. The broker is
asked as any client would ask, through Kafka's own client library; this module is the only place where the driver
talks to anybody.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

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

    ``settings`` are more of those that Kafka's clients take; under ``read_committed`` an open transaction ends it.
    """
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
    client = AdminClient({**(settings or {}), "bootstrap.servers": address, "log_level": 0})
    level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
    ends = []
    try:
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):  # type: ignore[no-untyped-call]
            answers = client.list_offsets(
                dict.fromkeys(asked.values(), spec),
                isolation_level=level,
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
    """Return whether a live process holds the directory's lock: the kernel knows, and a killed broker's is gone."""
    try:
        with (data / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
