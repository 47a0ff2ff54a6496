"""Who may log in by SCRAM, and giving passwords and taking them away, in the running broker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from magnetar.admin.errors import AdminError, Invalid, NotThere
from magnetar.auth.errors import UnacceptableCredential
from magnetar.auth.scram import MECHANISMS, of_password
from magnetar.auth.scram_users import Alteration, ScramUsers, check_iterations, check_name
from magnetar.metadata import MetadataError
from magnetar.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class User:
    """One of them: the iterations of his password by mechanism."""

    name: str
    mechanisms: dict[str, int]
    enabled: bool = True
    """Whether the broker takes any of these mechanisms (sasl.enabled.mechanisms)."""


class LiveUsers:
    """Answers questions about users, and carries out orders."""

    def __init__(self, users: ScramUsers, settings: Settings) -> None:
        self._users = users
        everywhere = (settings.security, *settings.security_by_listener.values())
        self._enabled = frozenset(each for part in everywhere for each in part.sasl_enabled_mechanisms)

    def all(self) -> tuple[User, ...]:
        """Return all users."""
        return tuple(map(self._user, self._users.names()))

    async def set(self, user: str, password: str, mechanisms: list[str], iterations: int) -> tuple[User, ...]:
        """Return a user a password, for these mechanisms; for those that are enabled if none is named."""
        wanted = mechanisms or [each for each in MECHANISMS if each in self._enabled] or list(MECHANISMS)
        unknown = [each for each in wanted if each not in MECHANISMS]
        if unknown:
            raise Invalid(f"{unknown[0]!r} is no mechanism", f"There are {' and '.join(MECHANISMS)}.")
        if not password:
            raise Invalid("a password must not be empty")
        try:
            check_name(user)
            check_iterations(iterations)
        except UnacceptableCredential as error:
            raise Invalid(str(error)) from None
        made = [
            await asyncio.to_thread(of_password, MECHANISMS[each], password, iterations)
            for each in dict.fromkeys(wanted)
        ]
        alterations = zip(dict.fromkeys(wanted), made, strict=True)
        await self._alter([Alteration(user, MECHANISMS[name], each) for name, each in alterations])
        return (self._user(user),)

    async def delete(self, user: str) -> tuple[User, ...]:
        """Forget all passwords of a user, and give the users that are left."""
        found = self._users.of(user)
        if not found:
            raise NotThere(f"there is no user {user}", "See 'magnetar user list'.")
        await self._alter([Alteration(user, MECHANISMS[name], None) for name in found])
        return self.all()

    async def _alter(self, alterations: list[Alteration]) -> None:
        try:
            await self._users.alter(alterations)
        except MetadataError as error:
            raise AdminError(f"nothing was kept: {error}") from error

    def _user(self, name: str) -> User:
        kept = {mechanism: each.iterations for mechanism, each in self._users.of(name).items()}
        return User(name, kept, not self._enabled.isdisjoint(kept))
