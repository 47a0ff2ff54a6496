"""All of a broker's security in one place, made from its settings when it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.broker.auth.authentication import Authentication
from magnetar.broker.auth.authorization import Authorization
from magnetar.broker.auth.permissions import Permissions

if TYPE_CHECKING:
    from magnetar.broker.namespaces import Namespaces
    from magnetar.broker.settings import Settings


class Security:
    """Who is who, who may do what, and how that is changed."""

    def __init__(self, settings: Settings, namespaces: Namespaces) -> None:
        """Raise `InvalidConfig` for what cannot be."""
        self.authentication = Authentication(settings.security, settings.given)
        self.authorization = Authorization(settings.security, namespaces)
        self.permissions = Permissions(namespaces)
