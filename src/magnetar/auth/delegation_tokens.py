"""Delegation tokens (KIP-48): a user gives one to workers, which log in with it by SCRAM instead of the password.

They are stored in the metadata store at ``/magnetar/delegation-tokens/<id>``, JSON, without their proof: that is the
HMAC of the id with the broker's secret (``delegation.token.secret.key``), base64 of which is the password.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace

from magnetar.auth.errors import (
    TokenExpired,
    TokenNotFound,
    TokenNotYours,
    TokensDisabled,
    TooManyRenewers,
)
from magnetar.auth.scram import Credential, Mechanism, of_salted_password, salted
from magnetar.metadata import ANY, MUST_NOT_EXIST, Delete, MetadataCorrupt, Op, Put, Stored
from magnetar.metadata.cache import MetadataCache
from magnetar.settings.security import SecuritySettings

_ROOT = "/magnetar/delegation-tokens"
_ITERATIONS = 4096
_SALT_BYTES = 16
MAX_RENEWERS = 100
"""The most renewers of one token; Kafka has no bound."""


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token. Times are ms since 1970; ``owner``, ``requester`` and ``renewers`` are roles."""

    id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    max_ms: int
    """When it expires however often it is renewed."""
    expires_ms: int

    def is_of(self, role: str) -> bool:
        """True if a role may renew it, expire it and see it."""
        return role in (self.owner, self.requester, *self.renewers)


class DelegationTokens:
    """All delegation tokens, in memory."""

    root = _ROOT

    def __init__(self, settings: SecuritySettings, cache: MetadataCache) -> None:
        self._settings = settings
        self._secret = settings.delegation_token_secret_key.encode()
        self._cache = cache
        self._tokens: dict[str, DelegationToken] = {}
        """By path."""
        self._by_proof: dict[bytes, DelegationToken] = {}
        self._credentials: dict[tuple[str, str], Credential] = {}
        """By id and mechanism, for tokens that were used to log in."""

    @property
    def enabled(self) -> bool:
        """True if there is a secret to create tokens with."""
        return bool(self._secret)

    def known(self) -> Iterable[str]:
        return tuple(self._tokens)

    def apply(self, path: str, stored: Stored | None) -> None:
        """Apply the stored state of one token."""
        now = None if stored is None or path == _ROOT else _decode(path, stored.value)
        before = self._tokens.pop(path, None)
        if before is not None:
            self._by_proof.pop(self.proof(before), None)
        if now is not None:
            self._tokens[path] = self._by_proof[self.proof(now)] = now
        elif before is not None:
            for key in [each for each in self._credentials if each[0] == before.id]:
                del self._credentials[key]

    def proof(self, token: DelegationToken) -> bytes:
        """Return the HMAC of a token, which its holder shows."""
        return hmac.digest(self._secret, token.id.encode(), "sha512")

    def all(self, now_ms: int) -> list[DelegationToken]:
        """Return the tokens that have not expired."""
        return [each for each in self._tokens.values() if each.expires_ms > now_ms]

    def by_id(self, token_id: str, now_ms: int) -> DelegationToken | None:
        """Return a token that has not expired, None without one."""
        found = self._tokens.get(f"{_ROOT}/{token_id}") if "/" not in token_id else None
        return found if self.enabled and found is not None and found.expires_ms > now_ms else None

    def credential(self, token: DelegationToken, mechanism: Mechanism) -> Credential:
        """Return the SCRAM credential of a token. The first time takes milliseconds."""
        key = (token.id, mechanism.name)
        if key not in self._credentials:
            salt = os.urandom(_SALT_BYTES)
            password = base64.b64encode(self.proof(token))
            made = salted(mechanism, password, salt, _ITERATIONS)
            self._credentials[key] = of_salted_password(mechanism, made, salt, _ITERATIONS)
        return self._credentials[key]

    async def create(
        self, owner: str, requester: str, renewers: Iterable[str], lifetime_ms: int, now_ms: int
    ) -> DelegationToken:
        """Create a token; a ``lifetime_ms`` of 0 or less is the longest possible.

        Raises `TokensDisabled` or `TooManyRenewers`.
        """
        if not self.enabled:
            raise TokensDisabled("Delegation Token feature is not enabled.")
        renewers = tuple(dict.fromkeys(renewers))
        if len(renewers) > MAX_RENEWERS:
            raise TooManyRenewers(f"A delegation token may have {MAX_RENEWERS} renewers.")
        settings = self._settings
        longest = settings.delegation_token_max_lifetime_ms
        max_ms = now_ms + (min(lifetime_ms, longest) if lifetime_ms > 0 else longest)
        expires_ms = min(max_ms, now_ms + settings.delegation_token_expiry_time_ms)
        token_id = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
        made = DelegationToken(token_id, owner, requester, renewers, now_ms, max_ms, expires_ms)
        await self._cache.commit([Put(_path(made), _encode(made), MUST_NOT_EXIST)])
        return made

    async def renew(self, proof: bytes, role: str, period_ms: int, now_ms: int) -> int:
        """Renew a token, and return when it expires; raise `TokenNotFound`, `TokenNotYours` or `TokenExpired`."""
        period = period_ms if period_ms > 0 else self._settings.delegation_token_expiry_time_ms
        return await self._ends(proof, role, now_ms, lambda token: min(token.max_ms, now_ms + period))

    async def expire(self, proof: bytes, role: str, period_ms: int, now_ms: int) -> int:
        """Expire a token after a period, immediately if that is negative, and return when; raise as `renew`."""
        if period_ms < 0:
            return await self._ends(proof, role, now_ms, lambda token: now_ms)
        return await self._ends(proof, role, now_ms, lambda token: min(token.max_ms, now_ms + period_ms))

    async def _ends(
        self, proof: bytes, role: str, now_ms: int, when: Callable[[DelegationToken], int]
    ) -> int:
        if not self.enabled:
            raise TokensDisabled("Delegation Token feature is not enabled.")
        ends = now_ms

        def plan() -> list[Op]:
            nonlocal ends
            token = self._by_proof.get(proof)
            if token is None:
                raise TokenNotFound("Delegation Token is not found on server.")
            if not token.is_of(role):
                raise TokenNotYours("Specified Principal is not valid Owner/Renewer.")
            if token.expires_ms <= now_ms:
                raise TokenExpired("Delegation Token is expired.")
            ends = when(token)
            if ends <= now_ms:
                return [Delete(_path(token), ANY)]
            return [Put(_path(token), _encode(replace(token, expires_ms=ends)), ANY)]

        await self._cache.change(plan)
        return ends

    async def tidy(self, now_ms: int) -> None:
        """Delete the tokens that have expired."""
        for path in [path for path, each in self._tokens.items() if each.expires_ms <= now_ms]:
            await self._cache.change(lambda path=path: [Delete(path, ANY)] if path in self._tokens else [])  # type: ignore[misc]


def _path(token: DelegationToken) -> str:
    return f"{_ROOT}/{token.id}"


def _encode(token: DelegationToken) -> bytes:
    return json.dumps(asdict(token)).encode()


def _decode(path: str, value: bytes) -> DelegationToken:
    try:
        found = json.loads(value)
        return DelegationToken(**{**found, "renewers": tuple(map(str, found["renewers"]))})
    except (ValueError, KeyError, TypeError) as error:
        raise MetadataCorrupt(path, f"not a delegation token: {error}") from error
