"""A JSON Web Key Set: the public keys of an identity provider, found by the ``kid`` of a token (RFC 7517).

A set in a file is read again when the file changes. One at an http address is fetched in a thread: regularly, after
growing pauses where that failed, and when a token names an unknown key. A provider known by its issuer alone is asked
where its keys are (``/.well-known/openid-configuration``, OpenID Connect Discovery). Old keys stay valid until there
are new ones. Only one fetch is under way, with one thread of its own, however many wait for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from magnetar.auth.key_provider import DEADLINE_S, got_within
from magnetar.auth.keys import VerificationKey, algorithms_of, file_of, read_location
from magnetar.base.errors import InvalidConfig

_SETTING = "token.jwks"
_UNKNOWN_KEY_S = 30.0  # a client's made-up key ids must not cause a fetch each time
_DISCOVERY = "/.well-known/openid-configuration"
_log = logging.getLogger("magnetar.auth")


class Pauses(NamedTuple):
    """When a key set is fetched again: regularly, and after failures in a row, whose pauses double."""

    refresh_ms: int = 3_600_000
    retry_ms: int = 100
    max_retry_ms: int = 10_000

    def after_s(self, failures: int) -> float:
        """Return the pause after so many failures in a row."""
        if not failures:
            return self.refresh_ms / 1000
        return min(self.retry_ms << min(failures - 1, 20), self.max_retry_ms) / 1000


_PAUSES = Pauses()


class KeySet:
    """Keys at one location. The first read raises `InvalidConfig`; later ones keep the old keys and log a warning."""

    def __init__(
        self,
        location: str,
        pauses: Pauses = _PAUSES,
        clock: Callable[[], float] = time.monotonic,
        *,
        discover: bool = False,
    ) -> None:
        """``discover``: the location is an issuer, which says where its keys are."""
        self._location = location
        self._pauses = pauses
        self._clock = clock
        self._discover = discover
        self._is_remote = discover or location.startswith(("http://", "https://"))
        self._lock = threading.Lock()
        self._fetching: _Fetch | None = None
        self._asked = -_UNKNOWN_KEY_S
        self._failures = 0
        """Failures in a row."""
        self._file = None if self._is_remote else file_of(location)
        self._seen = _signature(self._file)
        self._keys: tuple[VerificationKey, ...] = ()
        if self._is_remote:
            self._ask()
        else:
            self._keys = parse_keys(read_location(location, _SETTING))

    def candidates(self, key_id: str | None) -> Sequence[VerificationKey]:
        """Return the keys that may have signed a token; without a key id, all of them."""
        self._look_again()
        found = self._named(key_id)
        if not found and self._is_remote and self._clock() - self._asked >= self._unknown_s():
            self._ask()
        return found

    def is_coming(self, key_id: str | None) -> bool:
        """True if a key for this id is not known, but a fetch is under way: then `wait` may bring it."""
        return not self.candidates(key_id) and self._fetching is not None and not self._fetching.is_done

    async def wait(self) -> None:
        """Wait for a fetch that is under way, as long as one may take."""
        if self._fetching is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(DEADLINE_S + 1):
                    await self._fetching.wait()

    def _unknown_s(self) -> float:
        return self._pauses.after_s(self._failures) if self._failures else _UNKNOWN_KEY_S

    def _named(self, key_id: str | None) -> list[VerificationKey]:
        return [key for key in self._keys if key_id is None or key.key_id is None or key.key_id == key_id]

    def _look_again(self) -> None:
        if self._is_remote:
            if self._clock() - self._asked >= self._pauses.after_s(self._failures):
                self._ask()
        elif (seen := _signature(self._file)) != self._seen:
            self._seen = seen
            try:
                self._keys = parse_keys(read_location(self._location, _SETTING))
            except InvalidConfig as error:
                _log.error("the key set at %s is not taken: %s", self._location, error)

    def _ask(self) -> None:
        with self._lock:
            if self._fetching is not None and not self._fetching.is_done:
                return
            self._asked = self._clock()
            self._fetching = _Fetch(self._fetch)

    def _fetch(self) -> None:
        from http.client import HTTPException  # a megabyte, and few brokers have a provider

        until_s = time.monotonic() + DEADLINE_S
        try:
            location = self._location
            if self._discover:
                location = _discovered(location, until_s)
            self._keys = parse_keys(_got(location, until_s))
            self._failures = 0
        except (OSError, ValueError, RecursionError, HTTPException, InvalidConfig) as error:
            self._failures += 1
            _log.error("the key set at %s is not taken: %s", self._location, error)


class _Fetch:
    """A fetch in a thread of its own. All that wait for its end, on one loop, share an event."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._waited: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self.is_done = False
        threading.Thread(target=self._run, name="jwks", daemon=True).start()

    def _run(self) -> None:
        try:
            self._work()
        finally:
            with self._lock:
                self.is_done = True
            if self._waited is not None:
                loop, ended = self._waited
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(ended.set)

    async def wait(self) -> None:
        with self._lock:
            if self.is_done:
                return
            if self._waited is None:
                self._waited = asyncio.get_running_loop(), asyncio.Event()
            _, ended = self._waited
        await ended.wait()


def _got(location: str, until_s: float) -> bytes:
    if not location.startswith(("http://", "https://")):
        raise InvalidConfig(f"{location} is no http address")
    return got_within(location, until_s)


def _discovered(issuer: str, until_s: float) -> str:
    """Return where an issuer says that its keys are."""
    try:
        said = json.loads(_got(issuer.rstrip("/") + _DISCOVERY, until_s))
        told, location = said["issuer"], said["jwks_uri"]
    except (KeyError, TypeError) as error:
        raise InvalidConfig(f"its configuration has no issuer with a jwks_uri: {error!r}") from None
    if told != issuer:
        raise InvalidConfig(f"it calls itself {told!r}")
    if not isinstance(location, str):
        raise InvalidConfig("its jwks_uri is no address")
    return location


def parse_keys(content: bytes) -> tuple[VerificationKey, ...]:
    """Return the set's signing keys; kinds that are unknown are left out, secrets are refused (`InvalidConfig`)."""
    import jwt

    try:
        rows = json.loads(content)["keys"]
        found = [_key(row, jwt) for row in rows if row.get("use", "sig") == "sig"]
    except InvalidConfig:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, jwt.PyJWTError) as error:
        raise InvalidConfig(f"configuration {_SETTING} holds no JSON Web Key Set: {error!r}") from None
    return tuple(key for key in found if key is not None)


def _key(row: dict[str, Any], jwt: Any) -> VerificationKey | None:
    if row.get("kty") == "oct":
        raise InvalidConfig(
            f"configuration {_SETTING} holds a secret key; only public keys may be in a key set"
        )
    if row.get("kty") not in ("RSA", "EC"):
        return None
    key = jwt.PyJWK(row, algorithm=None if "alg" in row or row["kty"] == "EC" else "RS256").key
    if hasattr(key, "public_key"):
        key = key.public_key()
    allowed = algorithms_of(key, _SETTING)
    if row.get("alg") in allowed:
        allowed = (row["alg"],)
    return VerificationKey(key, allowed, row.get("kid"))


def _signature(path: Path | None) -> tuple[int, int, int] | None:
    try:
        found = path.stat() if path is not None else None
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino) if found is not None else None
