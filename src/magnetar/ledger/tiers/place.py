"""Where offloaded ledgers go: a driver by Pulsar's name, and what it needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from magnetar.ledger.errors import CannotOffload
from magnetar.ledger.values import Offload

S3_DRIVERS = ("aws-s3", "S3")
DIRECTORY_DRIVER = "filesystem"
DRIVERS = (*S3_DRIVERS, DIRECTORY_DRIVER)
_DRIVER, _BUCKET, _REGION, _ENDPOINT, _PREFIX, _PATH = (
    "managedLedgerOffloadDriver", "bucket", "region", "serviceEndpoint", "prefix", "path",
)  # fmt: skip
"""The first four are those of Pulsar's own offloader."""


@dataclass(frozen=True, slots=True)
class TierPlace:
    """One bucket, or one directory. ``prefix`` stands before each key; Pulsar's own offloader knows none."""

    driver: str
    bucket: str = ""
    region: str = ""
    endpoint: str = ""
    prefix: str = ""
    path: str = ""
    """The directory, of the driver ``filesystem``."""

    @property
    def words(self) -> Mapping[str, str]:
        """What a ledger's metadata says of it: Pulsar's ``driverMetadata``."""
        if self.driver == DIRECTORY_DRIVER:
            return {_DRIVER: self.driver, _PATH: self.path}
        said = {_DRIVER: self.driver, _BUCKET: self.bucket, _REGION: self.region, _ENDPOINT: self.endpoint}
        return said | ({_PREFIX: self.prefix} if self.prefix else {})


def place_of(offload: Offload) -> TierPlace:
    """Return where an offloaded ledger lies; raise ``CannotOffload`` for a driver that is not known here."""
    return place_in(offload.driver, offload.place)


def place_in(driver: str, words: Mapping[str, str]) -> TierPlace:
    """Return the place that metadata speaks of; raise ``CannotOffload`` for a driver that is not known here."""
    if driver not in DRIVERS:
        raise CannotOffload(f"offloaded by driver {driver!r}, which is none of {', '.join(DRIVERS)}")
    return TierPlace(
        driver,
        words.get(_BUCKET, ""),
        words.get(_REGION, ""),
        words.get(_ENDPOINT, ""),
        words.get(_PREFIX, ""),
        words.get(_PATH, ""),
    )
