"""All of a broker's security in one place, made from its settings when it starts."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from magnetar.broker.auth.acl_store import Acls
from magnetar.broker.auth.authentication import Authentication
from magnetar.broker.auth.authorization import Authorization
from magnetar.broker.auth.scram_users import ScramUsers
from magnetar.broker.names import Naming
from magnetar.broker.security_settings import SecuritySettings
from magnetar.metadata.cache import MetadataCache
from magnetar.metadata.when_there import WhenThere

if TYPE_CHECKING:
    from magnetar.broker.auth.delegation_tokens import DelegationTokens
    from magnetar.broker.auth.permissions import Permissions
    from magnetar.broker.auth.policies import Policies
    from magnetar.broker.namespaces import Namespaces


_DELEGATION_TOKENS = "/magnetar/delegation-tokens"


class Security:
    """Who is who, who may do what, and how that is changed."""

    def __init__(
        self,
        settings: SecuritySettings,
        namespaces: Namespaces,
        metadata: MetadataCache,
        naming: Naming,
        given: frozenset[str] = frozenset(),
        *,
        by_tenant: bool = False,
    ) -> None:
        """``given`` are the fields that somebody has set. Raise `InvalidConfig` for what cannot be."""
        self.authentication = Authentication(settings, given)
        self.acls = Acls(metadata)
        self.authorization = Authorization(settings, namespaces, self.acls, naming, by_tenant=by_tenant)
        self._namespaces = namespaces
        self._naming = naming
        self.scram = ScramUsers(metadata)
        self._settings = settings
        self._metadata = metadata
        self._tokens = WhenThere(_DELEGATION_TOKENS, self._made_tokens)

    @cached_property
    def policies(self) -> Policies:
        """What is granted, as Kafka's ACLs."""
        from magnetar.broker.auth.policies import Policies

        wildcards = self._settings.authorization_allow_wildcards_matching
        return Policies(self._namespaces, self.acls, self._naming, wildcards=wildcards)

    @cached_property
    def permissions(self) -> Permissions:
        """What is granted, as Pulsar's permissions."""
        from magnetar.broker.auth.permissions import Permissions

        return Permissions(self._namespaces, self.policies)

    async def start(self) -> None:
        """Hold what is stored of it, and follow that."""
        await self.scram.start()
        await self.acls.start()
        await self._metadata.follow(self._tokens)

    def _made_tokens(self) -> DelegationTokens:
        from magnetar.broker.auth.delegation_tokens import DelegationTokens

        return DelegationTokens(self._settings, self._metadata)

    @property
    def delegation_tokens(self) -> DelegationTokens:
        """Kafka's delegation tokens."""
        return self._tokens.get()
