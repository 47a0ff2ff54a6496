"""All of a broker's security in one place, made from its settings when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from magnetar.auth.acl_store import Acls
from magnetar.auth.authentication import Authentication
from magnetar.auth.authorization import Authorization
from magnetar.auth.scram_users import ScramUsers
from magnetar.metadata.cache import MetadataCache
from magnetar.metadata.when_there import WhenThere
from magnetar.settings.security import SecuritySettings
from magnetar.topics.names import Naming

if TYPE_CHECKING:
    from magnetar.auth.delegation_tokens import DelegationTokens
    from magnetar.auth.permissions import Permissions
    from magnetar.auth.policies import Policies
    from magnetar.topics.namespaces import Namespaces


_DELEGATION_TOKENS = "/magnetar/delegation-tokens"


class Security:
    """Authentication, authorization, and their administration."""

    def __init__(
        self,
        settings: SecuritySettings,
        namespaces: Namespaces,
        metadata: MetadataCache,
        naming: Naming,
        given: frozenset[str] = frozenset(),
        *,
        by_tenant: bool = False,
        by_listener: Mapping[str, SecuritySettings] | None = None,
    ) -> None:
        """``given`` are the fields that were set explicitly. Raise `InvalidConfig` for invalid settings."""
        self.authentication = Authentication(settings, given, by_listener or {})
        self.acls = Acls(metadata)
        self.authorization = Authorization(settings, namespaces, self.acls, naming, by_tenant=by_tenant)
        self._namespaces = namespaces
        self._naming = naming
        self.scram = ScramUsers(metadata)
        self._settings = settings
        self._metadata = metadata
        self._tokens = WhenThere(_DELEGATION_TOKENS, self._made_tokens)

    @property
    def token_scopes(self) -> tuple[str, ...]:
        """The scopes that a token must have, as refusals by OAUTHBEARER name them."""
        return self._settings.token_scopes

    @cached_property
    def policies(self) -> Policies:
        """All permissions, as Kafka's ACLs."""
        from magnetar.auth.policies import Policies

        wildcards = self._settings.authorization_allow_wildcards_matching
        return Policies(self._namespaces, self.acls, self._naming, wildcards=wildcards)

    @cached_property
    def permissions(self) -> Permissions:
        """All permissions, as Pulsar's grants."""
        from magnetar.auth.permissions import Permissions

        return Permissions(self._namespaces, self.policies)

    async def start(self) -> None:
        """Load what is stored, and follow it."""
        await self.scram.start()
        await self.acls.start()
        await self._metadata.follow(self._tokens)

    def _made_tokens(self) -> DelegationTokens:
        from magnetar.auth.delegation_tokens import DelegationTokens

        return DelegationTokens(self._settings, self._metadata)

    @property
    def delegation_tokens(self) -> DelegationTokens:
        """Kafka's delegation tokens."""
        return self._tokens.get()
