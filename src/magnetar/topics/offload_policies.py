"""When and where a topic's ledgers are offloaded: Pulsar's ``OffloadPolicies`` of the topic, its namespace, the broker.

A field that one of them does not set comes from the next one, as Pulsar merges them. Credentials belong to the broker:
a policy that contains some is refused, for every role that may see policies would see them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import unquote, urlsplit

from magnetar.base.errors import InvalidPolicy
from magnetar.ledger.errors import CannotOffload
from magnetar.ledger.port import LedgerSummary
from magnetar.ledger.tiers.place import DIRECTORY_DRIVER, DRIVERS, TierPlace
from magnetar.settings.offload import OffloadSettings
from magnetar.topics.topic_config import TopicConfig

_SECRETS = (
    "s3ManagedLedgerOffloadCredentialId", "s3ManagedLedgerOffloadCredentialSecret", "s3ManagedLedgerOffloadRole",
    "gcsManagedLedgerOffloadServiceAccountKeyFile",
)  # fmt: skip
THRESHOLD, SECONDS, LAG = (
    "managedLedgerOffloadThresholdInBytes",
    "managedLedgerOffloadThresholdInSeconds",
    "managedLedgerOffloadDeletionLagInMillis",
)
OLDER_KEYS = {
    "offload_threshold": THRESHOLD,
    "offload_threshold_in_seconds": SECONDS,
    "offload_deletion_lag_ms": LAG,
}
"""The fields that namespaces had before ``offload_policies``, and still have next to them."""


@dataclass(frozen=True, slots=True)
class OffloadPolicy:
    """The offload policy of one authority; None leaves a field to others. Sizes in bytes, times in ms."""

    driver: str | None = None
    bucket: str | None = None
    region: str | None = None
    endpoint: str | None = None
    prefix: str | None = None
    directory: str | None = None
    threshold_bytes: int | None = None
    threshold_ms: int | None = None
    deletion_lag_ms: int | None = None

    def over(self, below: OffloadPolicy) -> OffloadPolicy:
        """Return what is in force where this policy precedes ``below``. Another driver's bucket is not taken."""
        if self == _NOTHING:
            return below
        if self.driver is not None and self.driver != below.driver:
            below = replace(below, bucket=None, region=None, endpoint=None, prefix=None, directory=None)
        said = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(below, **{name: value for name, value in said.items() if value is not None})

    @property
    def place(self) -> TierPlace | None:
        """The place that ledgers go to; None for nowhere."""
        if not self.driver:
            return None
        if self.driver == DIRECTORY_DRIVER:
            return TierPlace(self.driver, path=self.directory or "")
        return TierPlace(
            self.driver, self.bucket or "", self.region or "", self.endpoint or "", self.prefix or ""
        )


_NOTHING = OffloadPolicy()


def decode_offload_policy(content: Mapping[str, Any], *, strict: bool = False) -> OffloadPolicy:
    """Read Pulsar's ``OffloadPolicies``; raise ``ValueError`` that names what is wrong.

    Unless ``strict``, what a Pulsar broker accepted is taken as it is: an offload itself fails then.
    """
    if not content:  # as most topics' are
        return _NOTHING
    driver = content.get("managedLedgerOffloadDriver") or None
    if strict and driver is not None and driver not in DRIVERS:
        raise ValueError(f"managedLedgerOffloadDriver is one of {', '.join(DRIVERS)}, not {driver!r}")
    for name in _SECRETS:
        if strict and content.get(name):
            raise ValueError(
                f"{name} is not taken: keys belong into the broker's settings or environment, where nobody reads them"
            )
    uri = content.get("fileSystemURI") or None
    return OffloadPolicy(
        driver=driver,
        bucket=_text(content, "Bucket"),
        region=_text(content, "Region"),
        endpoint=_text(content, "ServiceEndpoint"),
        directory=None if uri is None else directory_of(str(uri)),
        threshold_bytes=_number(content, THRESHOLD),
        threshold_ms=_scaled(_number(content, SECONDS)),
        deletion_lag_ms=_number(content, LAG),
    )


def decode_namespace(content: Mapping[str, Any]) -> OffloadPolicy:
    """Read the offload policy from a namespace's policies; raise ``ValueError`` or ``TypeError``."""
    policies = content.get("offload_policies") or {}
    older = {key: content.get(name) for name, key in OLDER_KEYS.items()}
    # Pulsar writes -1 for a threshold that was never set, and the broker's own counts then.
    said = {key: value for key, value in older.items() if value is not None and (key == LAG or value != -1)}
    return decode_offload_policy(
        {**said, **{key: value for key, value in policies.items() if value is not None}}
    )


def policy_of_broker(settings: OffloadSettings) -> OffloadPolicy:
    """Return the broker's own policy."""
    uri = settings.file_system_uri
    seconds = settings.managed_ledger_offload_threshold_seconds
    return OffloadPolicy(
        settings.managed_ledger_offload_driver,
        settings.managed_ledger_offload_bucket,
        settings.managed_ledger_offload_region,
        settings.managed_ledger_offload_service_endpoint,
        settings.managed_ledger_offload_prefix,
        directory_of(uri) if uri else "",
        settings.managed_ledger_offload_threshold_bytes,
        _scaled(seconds),
        settings.managed_ledger_offload_deletion_lag_ms,
    )


def directory_of(uri: str) -> str:
    """Return the directory that ``file:///DIRECTORY`` means; raise ``ValueError``."""
    parts = urlsplit(uri)
    if parts.scheme != "file" or parts.netloc or not parts.path.startswith("/"):
        raise ValueError(f"fileSystemURI is file:///DIRECTORY, not {uri!r}")
    return unquote(parts.path)


def check_offload_policy(content: Mapping[str, Any]) -> OffloadPolicy:
    """Return what `decode_offload_policy` does; raise ``InvalidPolicy`` if it is wrong, or lacks its bucket."""
    try:
        found = decode_offload_policy(content, strict=True)
    except (ValueError, TypeError) as error:
        raise InvalidPolicy(f"offload policies: {error}") from None
    place = found.place
    if place is not None and place.driver != DIRECTORY_DRIVER and not place.bucket:
        raise InvalidPolicy("The bucket must be specified for namespace offload.")
    return found


def due_to_leave(
    ledgers: list[LedgerSummary], policy: OffloadPolicy, config: TopicConfig, now_ms: int
) -> list[int]:
    """Return the ledgers that are due to be copied to tiered storage, the oldest first."""
    if config.remote_log_copy_disable or policy.place is None:
        return []
    threshold, age_ms = policy.threshold_bytes, policy.threshold_ms
    if config.remote_storage_enable:
        threshold = 0
    due: list[int] = []
    size = 0
    for each in reversed(ledgers):
        size += each.size
        if not each.sealed or not each.entries or each.compacted or (each.offload and each.offload.complete):
            continue
        is_large = threshold is not None and 0 <= threshold < size
        is_old = age_ms is not None and 0 <= age_ms <= now_ms - time_of(each)
        if is_large or is_old:
            due.append(each.ledger_id)
    return due[::-1]


def due_to_go_here(
    ledgers: list[LedgerSummary], policy: OffloadPolicy, config: TopicConfig, now_ms: int
) -> list[int]:
    """Return the ledgers whose local copies are due to be deleted, so that they lie in tiered storage alone.

    A topic with ``remote.storage.enable`` retains here what ``local.retention.*`` says, others what they had within
    Pulsar's deletion lag.
    """
    there = [each for each in ledgers if each.offload and each.offload.complete and not each.offload.deleted]
    if not config.remote_storage_enable:
        lag_ms = policy.deletion_lag_ms
        if lag_ms is None or lag_ms < 0:
            return []
        return [
            each.ledger_id for each in there if each.offload and each.offload.timestamp_ms + lag_ms <= now_ms
        ]
    most_ms, most_bytes = config.local_retention
    excess = local_bytes(ledgers) - most_bytes
    gone: list[int] = []
    for each in there:
        is_old = 0 <= most_ms < now_ms - time_of(each)
        if not is_old and (most_bytes < 0 or excess <= 0):
            break
        excess -= each.size
        gone.append(each.ledger_id)
    return gone


def time_of(ledger: LedgerSummary) -> int:
    """Return the time of a ledger's newest message; if that is unknown, when the ledger was created."""
    return ledger.max_timestamp if ledger.max_timestamp >= 0 else ledger.created_ms


def local_bytes(ledgers: list[LedgerSummary]) -> int:
    """Return the local size of ledgers."""
    return sum(each.size for each in ledgers if not each.offloaded)


def needs_place(policy: OffloadPolicy) -> TierPlace:
    """Return where ledgers go; raise ``CannotOffload`` if no policy names a place."""
    place = policy.place
    if place is None:
        raise CannotOffload(
            "nobody says where to: set managedLedgerOffloadDriver in the broker's settings, or offload policies"
        )
    return place


def _text(content: Mapping[str, Any], name: str) -> str | None:
    found = content.get(f"managedLedgerOffload{name}") or content.get(f"s3ManagedLedgerOffload{name}")
    return str(found) if found else None


def _number(content: Mapping[str, Any], name: str) -> int | None:
    value = content.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    return value


def _scaled(seconds: int | None) -> int | None:
    return seconds * 1000 if seconds is not None and seconds > 0 else seconds
