"""Certificates say who somebody is only where ``authentication.providers`` lets them, for Kafka as for Pulsar."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.auth import AuthenticationFailed
from magnetar.auth.authentication import Authentication
from magnetar.kafka.listeners import parse_listeners
from magnetar.kafka.login import login_for
from magnetar.settings.settings import Settings
from tests.security.signing import SECRET_URL

OPERATOR = {"subject": ((("commonName", "admin"),),)}


def settings(providers: str, asks: str) -> Settings:
    return Settings().with_values(
        {
            "listeners": "SSL://127.0.0.1:0",
            "authentication.enabled": "true",
            "authentication.providers": providers,
            "token.secret.key": SECRET_URL,
            "ssl.client.auth": asks,
            "ssl.truststore.location": "anywhere.pem",
        }
    )


@pytest.mark.parametrize("asks", ["requested", "required"])
@pytest.mark.parametrize(("providers", "known"), [("token", False), ("tls", True), ("token,tls", True)])
def test_kafkas_clients_too(providers: str, asks: str, known: bool) -> None:
    given = settings(providers, asks)
    authentication = Authentication(given.security)
    broker: Any = SimpleNamespace(
        settings=given,
        security=SimpleNamespace(
            authentication=authentication, authorization=SimpleNamespace(access=lambda role, host: None)
        ),
    )
    (listener,) = parse_listeners(given)
    tenancy: Any = object()
    login = login_for(broker, listener, OPERATOR, tenancy)
    assert login is not None
    assert login.is_done is known
    assert login.principal is None or login.principal.role == "admin"
    if not known:
        assert listener.sasl, "whose certificate says nothing may still come with a token"
        assert login._tenancy is tenancy, "and is then at home in a tenant as anybody"
        with pytest.raises(AuthenticationFailed):
            authentication.by_certificate(OPERATOR)
