"""Tiered storage in S3, and in what speaks like it, by obstore: Rust's object_store, without the interpreter's lock.

Keys come from the settings or, as everywhere with S3, from the environment (``AWS_ACCESS_KEY_ID`` and so on), a web
identity, or the machine's own role. What fails for a moment (500, 503, a connection that breaks) is tried again a few
times here; what fails longer is for whoever asked to try again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from magnetar.ledger.errors import CannotOffload, LedgerCorrupt, LedgerNotFound, TierFailed
from magnetar.ledger.tiers.objects import ObjectStore, StoredObject
from magnetar.ledger.tiers.place import TierPlace
from magnetar.records.compression import Buffer

_PART_BYTES = 8 << 20
_PARTS_AT_ONCE = 2
_TRIES, _TRYING = 2, timedelta(seconds=20)
_TIMEOUTS = {"connect_timeout": "5s", "timeout": "60s"}
_ADVICE = (
    "Check the bucket's name, the keys and their rights (s3:GetObject, PutObject, DeleteObject, ListBucket)"
)


class S3Store(ObjectStore):
    """One bucket. ``key_id`` and ``secret`` are the access key; empty ones are looked for in the environment."""

    def __init__(self, place: TierPlace, key_id: str = "", secret: str = "") -> None:
        try:
            import obstore
            from obstore.store import S3Store as Store
        except ImportError as error:
            raise CannotOffload(
                f"driver {place.driver} needs obstore: pip install 'magnetar[offload]'"
            ) from error
        given: dict[str, Any] = {"region": place.region or "us-east-1"}
        if place.endpoint:
            given["endpoint"] = place.endpoint
        if key_id:
            given |= {"access_key_id": key_id, "secret_access_key": secret}
        self.where = f"s3://{place.bucket}" + (f" at {place.endpoint}" if place.endpoint else "")
        self._calls = obstore
        with self._failing("be used", place.bucket):
            self._store = Store(
                place.bucket,
                prefix=place.prefix or None,
                client_options={**_TIMEOUTS, "allow_http": place.endpoint.startswith("http:")},
                retry_config={"max_retries": _TRIES, "retry_timeout": _TRYING},
                **given,
            )

    def put(self, key: str, pieces: Iterable[Buffer], attributes: Mapping[str, str]) -> None:
        said = {"Content-Type": "application/octet-stream", **attributes}
        failure: list[BaseException] = []
        with self._failing("be written", key):
            try:
                self._calls.put(
                    self._store,
                    key,
                    _remembering(pieces, failure),
                    attributes=said,
                    use_multipart=True,
                    chunk_size=_PART_BYTES,
                    max_concurrency=_PARTS_AT_ONCE,
                )
            except BaseException:
                if failure:
                    raise failure[0] from None  # the ledger could not be read: not the store's fault
                raise

    def read(self, key: str, start: int, size: int) -> bytes:
        with self._failing("be read", key):
            data = bytes(self._calls.get_range(self._store, key, start=start, length=size))
        if len(data) < size:
            raise LedgerCorrupt(
                f"{self.where}/{key}: ends at byte {start + len(data)}, and {start + size} were written",
                at=start + len(data),
            )
        return data

    def whole(self, key: str) -> bytes:
        with self._failing("be read", key):
            return bytes(self._calls.get(self._store, key).bytes())

    def size(self, key: str) -> int:
        try:
            with self._failing("be read", key):
                return int(self._calls.head(self._store, key)["size"])
        except LedgerNotFound:
            return -1

    def attributes(self, key: str) -> Mapping[str, str]:
        try:
            with self._failing("be read", key):
                return dict(self._calls.get(self._store, key, options={"head": True}).attributes)
        except LedgerNotFound:
            return {}

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            try:
                with self._failing("be deleted", key):
                    self._calls.delete(self._store, key)
            except LedgerNotFound:
                continue

    def listed(self) -> Iterator[StoredObject]:
        with self._failing("be listed", ""):
            for some in self._calls.list(self._store):
                for each in some:
                    modified_ms = int(each["last_modified"].timestamp() * 1000)
                    yield StoredObject(each["path"].rpartition("/")[2], each["size"], modified_ms)

    @contextmanager
    def _failing(self, what: str, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            told = _first_line(error)
            if "NoSuchBucket" in str(error) or what in ("be written", "be listed"):
                raise TierFailed(f"tiered storage {self.where}: there is no such bucket: {told}") from error
            raise LedgerNotFound(f"{self.where} has no object {key}") from error
        except (self._calls.exceptions.BaseError, OSError, ValueError) as error:
            told = _first_line(error)
            raise TierFailed(
                f"tiered storage {self.where}: {key} cannot {what}: {told}. {_ADVICE}"
            ) from error


def _remembering(pieces: Iterable[Buffer], failure: list[BaseException]) -> Iterator[Buffer]:
    """Yield the pieces; what making them raises is kept, for it comes out of the library as something else."""
    try:
        yield from pieces
    except BaseException as error:
        failure.append(error)
        raise


def _first_line(error: BaseException) -> str:
    """Return what a person wants to read of an error, without the trace that the library appends."""
    said = " ".join(str(error).partition("\n\nDebug source")[0].split())
    return said if len(said) <= 400 else said[:400] + " ..."
