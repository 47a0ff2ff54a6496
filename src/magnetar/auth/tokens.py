"""JSON Web Tokens, as Pulsar uses them: the subject of a token, and its expiry (RFC 7519)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from magnetar.auth.jwks import KeySet, Pauses
from magnetar.auth.keys import VerificationKey, public_key, read_location, secret_key
from magnetar.base.errors import InvalidConfig
from magnetar.settings.security import SecuritySettings

MAX_TOKEN_CHARACTERS = 64 << 10
_LAST_S = 253_402_300_800  # the year 10000


class TokenInvalid(Exception):
    """The token proves nothing; the message says why, and contains nothing of it."""


@dataclass(frozen=True, slots=True)
class Token:
    """The claims of a valid token. ``expires_at_s`` counts from 1970; None is never."""

    role: str
    expires_at_s: float | None
    claims: dict[str, Any]


class TokenVerifier:
    """Checks tokens against the keys that settings name."""

    def __init__(self, settings: SecuritySettings, given: frozenset[str] = frozenset()) -> None:
        """Raise `InvalidConfig` for keys that cannot be read or used."""
        self._settings = settings
        self._keys: list[VerificationKey] = []
        self._sets: dict[str, KeySet] = {}
        """Key sets of identity providers, by issuer if discovered; the set of ``token.jwks`` under no name."""
        if settings.token_secret_key:
            content = read_location(settings.token_secret_key, "token.secret.key")
            self._keys.append(secret_key(content, "token.secret.key"))
        if settings.token_public_key:
            content = read_location(settings.token_public_key, "token.public.key")
            self._keys.append(_of_kind(public_key(content, "token.public.key"), settings, given))
        if settings.token_jwks:
            self._sets[""] = KeySet(settings.token_jwks, _pauses(settings))
        else:
            self._sets = {
                issuer: KeySet(issuer, _pauses(settings), discover=True) for issuer in settings.token_issuers
            }
        if bool(settings.token_audience_claim) != bool(settings.token_audience):
            raise InvalidConfig(
                "token.audience.claim and token.audience are given together, or neither of them"
            )

    @property
    def has_keys(self) -> bool:
        """True if any token can be valid."""
        return bool(self._keys or self._sets)

    def is_coming(self, text: str) -> bool:
        """True if the keys of a token's issuer are being fetched now."""
        return self._awaited(text) is not None

    async def prepare(self, text: str) -> None:
        """Wait for the keys of a token's issuer if they are being fetched; other clients do not wait meanwhile."""
        if key_set := self._awaited(text):
            await key_set.wait()

    def _awaited(self, text: str) -> KeySet | None:
        if not self._sets:
            return None
        try:
            key_set, key_id, _ = self._unverified(text)
        except TokenInvalid:
            return None
        return key_set if key_set is not None and key_set.is_coming(key_id) else None

    def verify(self, text: str) -> Token:
        """Return a token's claims if its signature and times are valid, or raise `TokenInvalid`."""
        import jwt

        key_set, key_id, algorithm = self._unverified(text)
        provided = [] if key_set is None else key_set.candidates(key_id)
        keys = [key for key in (*self._keys, *provided) if algorithm in key.algorithms]
        if not keys and (self._keys or provided):
            raise TokenInvalid("The specified alg value is not allowed")
        refusal: Exception | None = None
        for key in keys:
            try:
                claims = jwt.decode(
                    text,
                    key.key,
                    algorithms=list(key.algorithms),
                    leeway=self._settings.token_allowed_clock_skew_seconds,
                    # The audience of a token may be in a claim of any name: see below.
                    options={"verify_aud": False, "verify_iat": False},
                )
            except jwt.InvalidSignatureError as error:
                refusal = error  # another key may fit
            except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
                raise TokenInvalid(str(error) or type(error).__name__) from None
            else:
                if not any(key is each for each in self._keys):
                    self._check_provided(claims)
                return self._told(claims)
        raise TokenInvalid(str(refusal) if refusal else "no key for it is known")

    def _unverified(self, text: str) -> tuple[KeySet | None, str | None, Any]:
        """Return a token's unverified header: the key set to check it with, the key's id, and the algorithm."""
        import jwt

        if len(text) > MAX_TOKEN_CHARACTERS:
            raise TokenInvalid(f"a token of {len(text)} characters is too long")
        try:
            header = jwt.get_unverified_header(text)
            key_set = self._sets.get("")
            if self._sets and key_set is None:
                issuer = jwt.decode(text, options={"verify_signature": False}).get("iss")
                key_set = self._sets.get(issuer) if isinstance(issuer, str) else None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            raise TokenInvalid("it is no JSON Web Token") from None
        key_id = header.get("kid")
        return key_set, key_id if isinstance(key_id, str) else None, header.get("alg")

    def _check_provided(self, claims: dict[str, Any]) -> None:
        """Check the claims that a token of an identity provider must have in addition to its audience."""
        settings = self._settings
        for name in ("exp", "iat"):  # as Kafka and Pulsar ask for: a session must end
            if not isinstance(claims.get(name), int | float):
                raise TokenInvalid(f"the claim {name!r} is missing")
        if settings.token_issuers and claims.get("iss") not in settings.token_issuers:
            raise TokenInvalid("Invalid issuer")
        if settings.token_audiences and not _words(claims.get("aud")) & set(settings.token_audiences):
            raise TokenInvalid("Audience doesn't match")
        scopes = claims.get(settings.token_scope_claim)
        has = set(scopes.split()) if isinstance(scopes, str) else _words(scopes)
        if missing := set(settings.token_scopes) - has:
            raise TokenInvalid(f"the scope {min(missing)!r} is missing")

    def _told(self, claims: dict[str, Any]) -> Token:
        self._check_audience(claims)
        role = claims.get(self._settings.token_auth_claim)
        if isinstance(role, list) and role:
            role = role[0]
        if not isinstance(role, str) or not role:
            raise TokenInvalid(f"the claim {self._settings.token_auth_claim!r} holds no role")
        return Token(role, self._end(claims.get("exp")), claims)

    def _end(self, expires: Any) -> float | None:
        """Return when a token expires. After the calendar's last year it never does: no clock and no field counts so
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


def _words(claim: Any) -> set[str]:
    """Return the words of a claim that is a word, or a list of words."""
    return {each for each in (claim if isinstance(claim, list) else [claim]) if isinstance(each, str)}


def _pauses(settings: SecuritySettings) -> Pauses:
    return Pauses(
        settings.token_jwks_refresh_ms,
        settings.token_jwks_retry_backoff_ms,
        settings.token_jwks_retry_backoff_max_ms,
    )


def _of_kind(key: VerificationKey, settings: SecuritySettings, given: frozenset[str]) -> VerificationKey:
    """Check that the key is of the kind that ``token.public.alg`` names, if that was given."""
    if "token_public_alg" in given and settings.token_public_alg not in key.algorithms:
        raise InvalidConfig(
            f"token.public.alg is {settings.token_public_alg}, but the key of token.public.key is for "
            f"{', '.join(key.algorithms)}"
        )
    return key
