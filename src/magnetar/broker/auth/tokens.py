"""JSON Web Tokens, as Pulsar uses them: whom a token is for, and until when (RFC 7519)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from magnetar.broker.auth.jwks import KeySet
from magnetar.broker.auth.keys import VerificationKey, public_key, read_location, secret_key
from magnetar.broker.errors import InvalidConfig
from magnetar.broker.security_settings import SecuritySettings

MAX_TOKEN_CHARACTERS = 64 << 10
_LAST_S = 253_402_300_800  # the year 10000


class TokenInvalid(Exception):
    """The token proves nothing; the message says why, and holds nothing of it."""


@dataclass(frozen=True, slots=True)
class Token:
    """What a good token says. ``expires_at_s`` counts from 1970; None is never."""

    role: str
    expires_at_s: float | None
    claims: dict[str, Any]


class TokenVerifier:
    """Checks tokens against the keys that settings name."""

    def __init__(self, settings: SecuritySettings, given: frozenset[str] = frozenset()) -> None:
        """Raise `InvalidConfig` for keys that cannot be read or used."""
        self._settings = settings
        self._keys: list[VerificationKey] = []
        self._set: KeySet | None = None
        if settings.token_secret_key:
            content = read_location(settings.token_secret_key, "token.secret.key")
            self._keys.append(secret_key(content, "token.secret.key"))
        if settings.token_public_key:
            content = read_location(settings.token_public_key, "token.public.key")
            self._keys.append(_of_kind(public_key(content, "token.public.key"), settings, given))
        if settings.token_jwks:
            self._set = KeySet(settings.token_jwks, settings.token_jwks_refresh_ms)
        if bool(settings.token_audience_claim) != bool(settings.token_audience):
            raise InvalidConfig(
                "token.audience.claim and token.audience are given together, or neither of them"
            )

    @property
    def has_keys(self) -> bool:
        """Whether any token can be good."""
        return bool(self._keys) or self._set is not None

    def verify(self, text: str) -> Token:
        """Return what a token says once its signature and times hold, or raise `TokenInvalid`."""
        import jwt

        if len(text) > MAX_TOKEN_CHARACTERS:
            raise TokenInvalid(f"a token of {len(text)} characters is too long")
        try:
            header = jwt.get_unverified_header(text)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenInvalid("it is no JSON Web Token") from None
        keys = self._candidates(header)
        refusal: Exception | None = None
        for key in keys:
            try:
                claims = jwt.decode(
                    text,
                    key.key,
                    algorithms=list(key.algorithms),
                    leeway=self._settings.token_allowed_clock_skew_seconds,
                    # For whom a token is made may be told in a claim of any name: see below.
                    options={"verify_aud": False, "verify_iat": False},
                )
            except jwt.InvalidSignatureError as error:
                refusal = error  # another key may fit
            except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
                raise TokenInvalid(str(error) or type(error).__name__) from None
            else:
                return self._told(claims)
        raise TokenInvalid(str(refusal) if refusal else "no key for it is known")

    def _candidates(self, header: dict[str, Any]) -> Sequence[VerificationKey]:
        """Return the keys that may verify the token's algorithm; an algorithm that none has is refused."""
        algorithm, key_id = header.get("alg"), header.get("kid")
        keys = list(self._keys)
        if self._set is not None:
            keys += self._set.candidates(key_id if isinstance(key_id, str) else None)
        fitting = [key for key in keys if algorithm in key.algorithms]
        if keys and not fitting:
            raise TokenInvalid("The specified alg value is not allowed")
        return fitting

    def _told(self, claims: dict[str, Any]) -> Token:
        self._check_audience(claims)
        role = claims.get(self._settings.token_auth_claim)
        if isinstance(role, list) and role:
            role = role[0]
        if not isinstance(role, str) or not role:
            raise TokenInvalid(f"the claim {self._settings.token_auth_claim!r} holds no role")
        return Token(role, self._end(claims.get("exp")), claims)

    def _end(self, expires: Any) -> float | None:
        """Return when a token ends. After the calendar's last year it never does: no clock and no field counts so
        far.
        """
        if expires is None or int(expires) >= _LAST_S:
            return None
        return float(expires) + self._settings.token_allowed_clock_skew_seconds

    def _check_audience(self, claims: dict[str, Any]) -> None:
        name, wanted = self._settings.token_audience_claim, self._settings.token_audience
        if not name:
            return
        found = claims.get(name)
        if found is None:
            raise TokenInvalid(f"the claim {name!r} is missing")
        if wanted != found and not (isinstance(found, list) and wanted in found):
            raise TokenInvalid("Audience doesn't match")


def _of_kind(key: VerificationKey, settings: SecuritySettings, given: frozenset[str]) -> VerificationKey:
    """Check that the key is of the kind that ``token.public.alg`` names, if that was given."""
    if "token_public_alg" in given and settings.token_public_alg not in key.algorithms:
        raise InvalidConfig(
            f"token.public.alg is {settings.token_public_alg}, but the key of token.public.key is for "
            f"{', '.join(key.algorithms)}"
        )
    return key
