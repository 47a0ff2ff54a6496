"""The sink's options: those of Spark's Kafka sink, and how sure it has to be.

kafka.bootstrap.servers      HOST:PORT of brokers; needed. Other names of Kafka's producer follow ``kafka.`` too:
                             client.id, request.timeout.ms, delivery.timeout.ms, retry.backoff.ms, security.protocol,
                             ssl.*, sasl.*, acks, compression.type, batch.size (bytes of a batch before compression)
topic                        where all rows go, before a column ``topic``
deliveryGuarantee            exactly-once (a stream's default) or at-least-once (a batch's default, as in Spark's sink)
stagingLocation              a directory that driver and executors share, for exactly-once; by default it is
                             ``magnetar-sink`` below a stream's checkpointLocation
txnAppId, txnVersion         make a batch write exactly-once: the same id with the same or a lower version is
                             written only once, as in Delta Lake; for ``foreachBatch`` and for jobs run again
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

from magnetar.client.settings import PREFIX, ClientSettings, client_settings
from magnetar.records.compression import Codec

BATCH_BYTES = 900_000  # below the megabyte that topics take by default, with room for what lz4 may add
STAGING = "magnetar-sink"

_NAMES = {
    name.lower(): name
    for name in (
        "topic", "deliveryGuarantee", "stagingLocation", "txnAppId", "txnVersion", "checkpointLocation", "path",
        "includeHeaders", "queryName",
    )
}  # fmt: skip
_USED = {
    "bootstrap.servers", "client.id", "request.timeout.ms", "delivery.timeout.ms", "retry.backoff.ms", "acks",
    "security.protocol", "compression.type", "batch.size",
}  # fmt: skip
_GUARANTEES = ("exactly-once", "at-least-once")
_ACKS = {"all": -1, "-1": -1, "1": 1}


@dataclass(frozen=True, slots=True)
class SinkTransaction:
    """A batch write that must not happen twice."""

    app_id: str
    version: int


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What one write was asked for."""

    client: ClientSettings
    topic: str | None = None
    staging: Path | None = None
    """Where to stage for exactly-once; None writes at least once."""
    transaction: SinkTransaction | None = None
    codec: Codec = Codec.none
    acks: int = -1
    batch_bytes: int = BATCH_BYTES


def parse_sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Read Spark's options; raise ``ValueError`` naming the option that is wrong and what it may be."""
    given = {name.lower(): str(value).strip() for name, value in options.items()}
    unknown = [name for name in given if name not in _NAMES and not name.startswith(PREFIX)]
    if unknown:
        raise ValueError(
            f"unknown option {unknown[0]!r} of the sink; there are: {', '.join(sorted(_NAMES.values()))}"
        )
    named = (name.removeprefix(PREFIX) for name in given if name.startswith(PREFIX))
    ignored = sorted(name for name in named if name not in _USED and not name.startswith(("sasl.", "ssl.")))
    if ignored:
        warnings.warn(
            f"these options of Kafka's producer have no meaning here: {', '.join(ignored)}", stacklevel=2
        )
    transaction = _transaction(given, streaming=streaming)
    default = _GUARANTEES[0 if streaming or transaction else 1]
    guarantee = given.get("deliveryguarantee", default).lower()
    if guarantee not in _GUARANTEES:
        raise ValueError(f"deliveryGuarantee must be one of {', '.join(_GUARANTEES)}, not {guarantee!r}")
    if guarantee == "exactly-once" and not streaming and transaction is None:
        raise ValueError("deliveryGuarantee exactly-once of a batch write needs txnAppId and txnVersion")
    return SinkOptions(
        client=client_settings(given),
        topic=given.get("topic"),
        staging=_staging(given) if guarantee == "exactly-once" else None,
        transaction=transaction,
        codec=_codec(given),
        acks=_acks(given, guarantee),
        batch_bytes=_batch_bytes(given),
    )


def _transaction(given: Mapping[str, str], *, streaming: bool) -> SinkTransaction | None:
    app_id, version = given.get("txnappid"), given.get("txnversion")
    if app_id is None and version is None:
        return None
    if streaming:
        raise ValueError("txnAppId and txnVersion are for batch writes; a stream is exactly-once by itself")
    if not app_id or version is None:
        raise ValueError("give both txnAppId and txnVersion, or none of them")
    if not version.isdigit():
        raise ValueError(f"txnVersion must be a number, 0 or above, not {version!r}")
    return SinkTransaction(app_id, int(version))


def _staging(given: Mapping[str, str]) -> Path:
    place = given.get("staginglocation")
    if place is None:
        if "checkpointlocation" not in given:
            raise ValueError(
                "exactly-once needs a directory that driver and executors share: set the option checkpointLocation or "
                "stagingLocation of this write, or deliveryGuarantee to at-least-once"
            )
        place = given["checkpointlocation"].rstrip("/") + "/" + STAGING
    parts = urlparse(place)
    if parts.scheme not in ("", "file"):
        raise ValueError(
            f"cannot stage in {place!r}: stagingLocation must be a path that driver and executors share, like "
            "/mnt/shared/staging"
        )
    return Path(unquote(parts.path) if parts.scheme else place).absolute()


def _codec(given: Mapping[str, str]) -> Codec:
    name = given.get(PREFIX + "compression.type", "none").lower()
    if name not in Codec.__members__:
        allowed = ", ".join(Codec.__members__)
        raise ValueError(f"kafka.compression.type must be one of {allowed}, not {name!r}")
    return Codec[name]


def _acks(given: Mapping[str, str], guarantee: str) -> int:
    text = given.get(PREFIX + "acks", "all").lower()
    allowed = ("all", "-1") if guarantee == "exactly-once" else tuple(_ACKS)
    if text not in allowed:
        raise ValueError(f"kafka.acks must be one of {', '.join(allowed)} for {guarantee}, not {text!r}")
    return _ACKS[text]


def _batch_bytes(given: Mapping[str, str]) -> int:
    text = given.get(PREFIX + "batch.size", str(BATCH_BYTES))
    if not text.isdigit() or not 0 < int(text) <= 1 << 30:
        raise ValueError(f"kafka.batch.size must be a number of bytes from 1 to {1 << 30}, not {text!r}")
    return int(text)
