"""Users and passwords, as Pulsar's AuthenticationProviderBasic takes them: lines ``user:hash``, as of htpasswd; and as
Kafka's PlainLoginModule does, which stores the passwords themselves (`magnetar.auth.jaas`).

Hashes may be bcrypt (``$2y$``), apr1 (``$apr1$``), SHA-256 and SHA-512 crypt (``$5$``, ``$6$``), ``{SHA}``, or the old
DES crypt; Pulsar itself takes apr1 and DES. Slow hashes are computed in threads, in `turns`, so a client that tries
many passwords delays hardly any other; a right password is remembered, under a key that lives as long as the process,
so that repeating it with each HTTP request costs nothing. For an unknown user no hash is computed: the answer comes
after as long as it takes for a known one.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from time import perf_counter

from magnetar.auth.keys import file_of, read_location
from magnetar.auth.turns import PasswordTurns, TooManyWait
from magnetar.base.errors import InvalidConfig

SCHEMES = ("bcrypt", "apr_md5_crypt", "sha512_crypt", "sha256_crypt", "ldap_sha1", "des_crypt")
_SETTING = "basic.auth.conf"
_log = logging.getLogger("magnetar.auth")


class WrongPassword(Exception):
    """The user is unknown, or the password is wrong; only the log says which of the two."""


class Passwords:
    """The users of one file, which is read again when it changes, and those with plain passwords, which stay."""

    def __init__(self, location: str, plain: Mapping[str, str] | None = None) -> None:
        """Raise `InvalidConfig` for an unreadable file, and for unknown kinds of hashes.

        ``location`` may be empty where there are ``plain`` passwords, by user.
        """
        from passlib.context import CryptContext

        self._context = CryptContext(schemes=list(SCHEMES))
        self._location = location
        self._plain = {user: password.encode() for user, password in (plain or {}).items()}
        self._key = os.urandom(32)
        self._right: dict[str, bytes] = {}
        """By user: the seal of the last right password."""
        self._stamp = self._look()
        self._users = self._read() if location else {}
        self._turns = PasswordTurns()
        self._check_s = 0.0
        """How long a check took last."""

    async def prove(self, said: str, address: str = "") -> str:
        """Return the user of ``user:password``, or raise `WrongPassword`; other clients do not wait for it.

        ``address`` is the client's: each address gets its turn.
        """
        user, colon, _ = said.partition(":")
        if not colon or not user:
            raise WrongPassword("expected user:password")
        remembered = self.remembered(said)
        if remembered is not None:
            return remembered
        if user in self._plain or not self._users:
            raise WrongPassword(self._wrong(user))
        try:
            if user in self._users:
                return await self._turns.work(user, address, partial(self.check, said))
            if not self._check_s:  # it is unknown yet how long a check takes
                await self._turns.work("", "", partial(self._take_time, said))
        except TooManyWait:
            raise WrongPassword(f"too many passwords of user {user!r} wait to be checked") from None
        await asyncio.sleep(self._check_s)
        raise WrongPassword(f"unknown user {user!r}")

    def _take_time(self, said: str) -> None:
        if not self._check_s:
            with suppress(WrongPassword):
                self.check(said)

    def check(self, said: str) -> str:
        """Return the user of ``user:password``, or raise `WrongPassword`. This may take long."""
        user, colon, password = said.partition(":")
        if not colon or not user:
            raise WrongPassword("expected user:password")
        if self._is_plainly(user, password):
            return user
        self._read_again()
        if user in self._plain or not self._users:
            raise WrongPassword(self._wrong(user))
        began = perf_counter()
        stored = self._users.get(user)
        # Against whatever hash there is, so that the time does not reveal whether the user exists.
        against = stored if stored is not None else next(iter(self._users.values()))
        try:
            is_right = self._context.verify(password, against)
        except (
            ValueError
        ) as error:  # a password that the hash cannot be of: with a zero in it, or much too long
            raise WrongPassword(f"user {user!r}: {error}") from None
        self._check_s = perf_counter() - began
        if stored is None or not is_right:
            raise WrongPassword(self._wrong(user))
        self._right[user] = self._seal(stored, password)
        return user

    def remembered(self, said: str) -> str | None:
        """Return the user of ``user:password`` if that was right a while ago; None means nothing."""
        user, _, password = said.partition(":")
        if self._is_plainly(user, password):
            return user
        self._read_again()
        stored, right = self._users.get(user), self._right.get(user)
        if stored is None or right is None:
            return None
        return user if hmac.compare_digest(right, self._seal(stored, password)) else None

    def _is_plainly(self, user: str, password: str) -> bool:
        known = self._plain.get(user)
        return known is not None and hmac.compare_digest(known, password.encode())

    def _wrong(self, user: str) -> str:
        is_known = user in self._users or user in self._plain
        return f"wrong password of {user!r}" if is_known else f"unknown user {user!r}"

    def _seal(self, stored: str, password: str) -> bytes:
        return hmac.digest(self._key, f"{stored}\0{password}".encode(), hashlib.sha256)

    def _look(self) -> tuple[int, int] | None:
        if not self._location:
            return None
        path = file_of(self._location)
        try:
            found = path.stat() if path is not None else None
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size) if found is not None else None

    def _read_again(self) -> None:
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._users = self._read()
        except InvalidConfig as error:
            _log.error("users stay as they were: %s", error)

    def _read(self) -> dict[str, str]:
        users = {}
        lines = read_location(self._location, _SETTING).decode("utf-8", "replace").splitlines()
        for number, line in enumerate(lines, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            user, colon, stored = line.partition(":")
            if not colon or not user or self._context.identify(stored) is None:
                raise InvalidConfig(
                    f"configuration {_SETTING}: line {number} is not user:hash with a hash of bcrypt, apr1, SHA crypt, "
                    "{SHA} or DES crypt, as htpasswd writes them"
                )
            users[user] = stored
        if not users:
            raise InvalidConfig(f"configuration {_SETTING}: no user is named")
        return users
