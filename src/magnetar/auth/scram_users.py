"""Users with SCRAM credentials, in the metadata store: ``/magnetar/scram/<mechanism>/<user>``, JSON.

    {"iterations": 8192, "salt": "<base64>", "stored_key": "<base64>", "server_key": "<base64>"}

Names are percent-encoded. ``/magnetar/scram/secret`` is the source of the salts of unknown users, so that these look
like any other user's.
"""

from __future__ import annotations

import base64
import hmac
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from urllib.parse import quote, unquote

from magnetar.auth.errors import UnacceptableCredential, UserNotFound
from magnetar.auth.scram import (
    MAX_ITERATIONS,
    MAX_NAME_BYTES,
    MECHANISMS,
    MIN_ITERATIONS,
    Credential,
    Mechanism,
    impostor,
    of_password,
)
from magnetar.metadata import ANY, MUST_NOT_EXIST, BadVersion, Delete, MetadataCorrupt, Op, Put, Stored
from magnetar.metadata.cache import MetadataCache

_ROOT = "/magnetar/scram"
_SECRET = f"{_ROOT}/secret"
_SECRET_BYTES = 32


class Alteration(NamedTuple):
    """The new credential of a user for one mechanism; None deletes it."""

    user: str
    mechanism: Mechanism
    credential: Credential | None


class ScramUsers:
    """All users with SCRAM credentials, in memory."""

    root = _ROOT

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._secret = os.urandom(_SECRET_BYTES)
        self._users: dict[str, dict[str, Credential]] = {name: {} for name in MECHANISMS}
        """By mechanism, by user."""
        self._paths: set[str] = set()
        self._typical: dict[str, Credential | None] = {}
        self._of_brokers: Credential | None = None

    async def start(self) -> None:
        """Load what is stored, and follow it."""
        await self._cache.follow(self)
        if _SECRET not in self._paths:
            try:
                await self._cache.commit([Put(_SECRET, self._secret.hex().encode(), MUST_NOT_EXIST)])
            except BadVersion:
                pass  # another broker was faster, and its secret has been read

    # Following what is stored.

    def known(self) -> Iterable[str]:
        return tuple(self._paths)

    def apply(self, path: str, stored: Stored | None) -> None:
        """Apply the stored state of one user, or of the secret."""
        if path == _SECRET:
            if stored is not None:
                self._secret = stored.value
                self._of_brokers = None
                self._paths.add(path)
            return
        mechanism, slash, name = path.removeprefix(_ROOT + "/").partition("/")
        users = self._users.get(mechanism)
        if users is None or not slash:
            return
        self._typical.pop(mechanism, None)
        if stored is None:
            users.pop(unquote(name), None)
            self._paths.discard(path)
        else:
            users[unquote(name)] = _decode(path, stored.value)
            self._paths.add(path)

    # Asking.

    def names(self) -> list[str]:
        """Return all users, sorted."""
        return sorted({user for users in self._users.values() for user in users})

    def of(self, user: str) -> Mapping[str, Credential]:
        """Return a user's credentials by mechanism; none for an unknown user."""
        return {name: users[user] for name, users in self._users.items() if user in users}

    def credential(self, mechanism: Mechanism, user: str) -> Credential | None:
        """Return a user's credential."""
        return self._users[mechanism.name].get(user)

    def stand_in(self, mechanism: Mechanism, user: str) -> Credential:
        """Return the credential of an unknown user; it looks like most users' credentials, and no password fits."""
        return impostor(mechanism, user, self._secret, self._most_common(mechanism))

    def _most_common(self, mechanism: Mechanism) -> Credential | None:
        if mechanism.name not in self._typical:
            users = self._users[mechanism.name]
            shapes = {(each.iterations, len(each.salt)): each for each in users.values()}
            counted = Counter((each.iterations, len(each.salt)) for each in users.values())
            self._typical[mechanism.name] = shapes[counted.most_common(1)[0][0]] if counted else None
        return self._typical[mechanism.name]

    @property
    def password_of_brokers(self) -> str:
        """The password with which the brokers of a cluster authenticate to each other."""
        return hmac.new(self._secret, b"between brokers", "sha256").hexdigest()

    def credential_of_brokers(self) -> Credential:
        """Return the SCRAM-SHA-256 credential of other brokers. The first time takes milliseconds."""
        if self._of_brokers is None:
            self._of_brokers = of_password(MECHANISMS["SCRAM-SHA-256"], self.password_of_brokers)
        return self._of_brokers

    # Changing what is stored.

    async def alter(self, alterations: Iterable[Alteration]) -> None:
        """Store and delete credentials, all of these or none; raise `UserNotFound` if one to delete is gone."""
        wanted = list(alterations)

        def plan() -> list[Op]:
            ops: list[Op] = []
            for user, mechanism, credential in wanted:
                path = f"{_ROOT}/{mechanism.name}/{encoded_name(user)}"
                if credential is not None:
                    ops.append(Put(path, _encode(credential), ANY))
                elif path in self._paths:
                    ops.append(Delete(path, ANY))
                else:
                    raise UserNotFound("Attempt to delete a user credential that does not exist")
            return ops

        await self._cache.change(plan)


def check_name(user: str) -> None:
    """Raise `UnacceptableCredential` for an invalid user name."""
    if not user:
        raise UnacceptableCredential("Username must not be empty")
    if "\0" in user or len(user.encode()) > MAX_NAME_BYTES:
        raise UnacceptableCredential(
            f"Username must not hold a zero character, nor more than {MAX_NAME_BYTES} bytes"
        )


def check_iterations(iterations: int) -> None:
    """Raise `UnacceptableCredential` for a number outside Kafka's bounds."""
    if iterations < MIN_ITERATIONS:
        raise UnacceptableCredential("Too few iterations")
    if iterations > MAX_ITERATIONS:
        raise UnacceptableCredential("Too many iterations")


def encoded_name(name: str) -> str:
    """Return any name as one segment of a path; `urllib.parse.unquote` reverses it."""
    made = quote(name, safe="")
    # No path may have a segment that means another one.
    return made.replace(".", "%2E") if set(made) == {"."} else made


def _encode(credential: Credential) -> bytes:
    parts = {name: base64.b64encode(getattr(credential, name)).decode() for name in _PARTS}
    return json.dumps({"iterations": credential.iterations, **parts}).encode()


def _decode(path: str, value: bytes) -> Credential:
    try:
        found = json.loads(value)
        parts = {name: base64.b64decode(found[name], validate=True) for name in _PARTS}
        return Credential(iterations=int(found["iterations"]), **parts)
    except (ValueError, KeyError, TypeError) as error:
        raise MetadataCorrupt(path, f"not a SCRAM credential: {error}") from error


_PARTS = ("salt", "stored_key", "server_key")
