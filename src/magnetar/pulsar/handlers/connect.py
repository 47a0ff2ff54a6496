"""CONNECT, AUTH_CHALLENGE and its response, PING and PONG: who is there, and whether it still is."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from magnetar import __version__
from magnetar.auth.authentication import AuthenticationFailed, Principal
from magnetar.auth.proxied import InvalidOriginalPrincipal, OriginalProof, behind
from magnetar.pulsar.errors import BadCommand
from magnetar.pulsar.phase import Phase
from magnetar.pulsar.settings import PulsarSettings
from magnetar.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandAuthResponse,
    CommandConnect,
    CommandPing,
    CommandPong,
    ServerError,
)

if TYPE_CHECKING:
    from magnetar.pulsar.connection import PulsarConnection

PROTOCOL_VERSION = 21
_NO_REQUEST = (1 << 64) - 1
_REFRESH = b"PulsarAuthRefresh"
_LEGACY_METHODS = {0: "none", 1: "ycav1", 2: "athens"}


def connect(
    connection: PulsarConnection, command: CommandConnect, entry: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Let a client in, or tell it why not and end the connection."""
    if connection.phase is not Phase.STRANGER:
        raise BadCommand("CONNECT twice")
    if command.HasField("proxy_to_broker_url"):
        raise BadCommand("CONNECT asks for a proxy, which this is not")
    method = command.auth_method_name
    if not command.HasField("auth_method_name") and command.HasField("auth_method"):
        method = _LEGACY_METHODS.get(command.auth_method, "none")
    authentication = connection.services.broker.security.authentication
    if not authentication.enabled or (
        authentication.takes_anonymous and method not in authentication.methods
    ):
        method = (
            "none"  # as with Pulsar: nobody is asked, or whose method is not served is nobody in particular
        )
    connection.original_principal = command.original_principal
    connection.original_proof = _original_proof(connection, command)
    connection.phase = Phase.PROVING
    if connection.original_proof is not None or authentication.takes_time(method, command.auth_data):
        return _connect_later(connection, method, command)
    if _authenticate(connection, method, command.auth_data):
        _welcome(connection, command)
    return None


def _original_proof(connection: PulsarConnection, command: CommandConnect) -> OriginalProof | None:
    """Return what a proxy forwards of its client, where that is to be checked."""
    security = connection.services.broker.security
    checked = connection.services.broker.settings.security.authenticate_original_auth_data
    if not checked or not security.authentication.enabled or not command.HasField("original_principal"):
        return None
    return OriginalProof(command.original_auth_method or "none", command.original_auth_data)


async def _connect_later(connection: PulsarConnection, method: str, command: CommandConnect) -> None:
    if await _prove(connection, method, command.auth_data):
        _welcome(connection, command)


def _welcome(connection: PulsarConnection, command: CommandConnect) -> None:
    connection.phase = Phase.CONNECTED
    connection.answers_challenges = command.feature_flags.supports_auth_refresh
    connection.client_version = command.client_version
    connection.protocol_version = command.protocol_version
    answer = BaseCommand(type=BaseCommand.CONNECTED)
    connected = answer.connected
    connected.server_version = f"Magnetar {__version__}"
    connected.protocol_version = min(command.protocol_version, PROTOCOL_VERSION)
    connected.max_message_size = connection.services.broker.settings.of(
        PulsarSettings
    ).pulsar_max_message_size
    connected.feature_flags.supports_topic_watchers = True
    connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
    connection.answer(answer)


def auth_response(
    connection: PulsarConnection, command: CommandAuthResponse, entry: memoryview
) -> Coroutine[Any, Any, None] | None:
    """Take new credentials of a client whose old ones ran out."""
    method, data = command.response.auth_method_name, command.response.auth_data
    if connection.phase is Phase.RENEWING:
        raise BadCommand("AUTH_RESPONSE twice")
    if not connection.services.broker.security.authentication.enabled:
        return None
    proof = connection.original_proof
    if proof is not None or connection.services.broker.security.authentication.takes_time(method, data):
        connection.phase = Phase.RENEWING
        return _respond_later(connection, method, data)
    _authenticate(connection, method, data)
    return None


async def _respond_later(connection: PulsarConnection, method: str, data: bytes) -> None:
    proof = connection.original_proof
    if proof is None:
        is_proved = await _prove(connection, method, data)
    else:
        # As in Pulsar: it is the client that is asked through its proxy, whose own proof is of the beginning.
        connection.original_proof = OriginalProof(method, data.decode("utf-8", "replace"))
        proxy = Principal(connection.proxy_role or connection.role, connection.auth_method)
        is_proved = await _prove_original(connection, proxy)
    if is_proved:
        connection.phase = Phase.CONNECTED


def _authenticate(connection: PulsarConnection, method: str, data: bytes) -> bool:
    """Return whether a client is who it says; one that is not is told so, and its connection ends."""
    authentication = connection.services.broker.security.authentication
    try:
        principal = authentication.authenticate(method, data, connection.certificate)
    except AuthenticationFailed as error:
        return _turn_away(connection, error)
    return _know(connection, principal)


async def _prove(connection: PulsarConnection, method: str, data: bytes) -> bool:
    """The same for what takes long to find out."""
    authentication = connection.services.broker.security.authentication
    try:
        principal = await authentication.prove(
            method, data, connection.certificate, address=connection.address.rpartition(":")[0]
        )
    except AuthenticationFailed as error:
        return _turn_away(connection, error)
    if connection.original_proof is not None:
        return await _prove_original(connection, principal)
    return _know(connection, principal)


async def _prove_original(connection: PulsarConnection, proxy: Principal) -> bool:
    """Have the client behind a proxy prove who it is, by what the proxy forwards of it."""
    proof = connection.original_proof
    assert proof is not None
    authentication = connection.services.broker.security.authentication
    method = proof.method
    if authentication.takes_anonymous and method not in authentication.methods:
        method = "none"
    try:
        # No certificate: that of the connection is the proxy's.
        client = await authentication.prove(
            method, proof.data, None, address=connection.address.rpartition(":")[0]
        )
    except AuthenticationFailed as error:
        return _turn_away(connection, error)
    connection.original_principal = client.role
    return _know(connection, replace(proxy, expires_at_s=client.expires_at_s))


def _turn_away(connection: PulsarConnection, error: AuthenticationFailed) -> bool:
    answer = BaseCommand(type=BaseCommand.ERROR)
    answer.error.request_id = _NO_REQUEST
    if isinstance(error, InvalidOriginalPrincipal):
        answer.error.error, answer.error.message = ServerError.AuthorizationError, "Invalid roles."
    else:
        answer.error.error = ServerError.AuthenticationError
        answer.error.message = "Unable to authenticate"
    connection.answer(answer)
    connection.refuse(f"authentication failed: {error}")
    return False


def _know(connection: PulsarConnection, principal: Principal) -> bool:
    broker = connection.services.broker
    try:
        if broker.security.authentication.enabled:
            principal = behind(principal, connection.original_principal, broker.settings.security)
    except InvalidOriginalPrincipal as error:
        return _turn_away(connection, error)
    if connection.is_connected and (principal.role, principal.proxy) != (
        connection.role,
        connection.proxy_role,
    ):
        connection.refuse(f"authentication failed: role {connection.role} would become {principal.role}")
        return False
    connection.role, connection.auth_method = principal.role, principal.method
    connection.proxy_role = principal.proxy
    connection.expires_at_s, connection.is_challenged = principal.expires_at_s, False
    connection.access = broker.security.authorization.access_of(
        principal, connection.address.rpartition(":")[0]
    )
    return True


def check_expiry(connection: PulsarConnection, now_s: float) -> None:
    """Ask a client whose proof has ended for a new one, and let it go if it has none by the next time."""
    if connection.expires_at_s is None or now_s < connection.expires_at_s:
        return
    if connection.is_challenged or not connection.answers_challenges:
        connection.refuse(f"what {connection.role} authenticated with has expired")
        return
    connection.is_challenged = True
    asked = BaseCommand(type=BaseCommand.AUTH_CHALLENGE)
    asked.authChallenge.server_version = f"Magnetar {__version__}"
    asked.authChallenge.protocol_version = min(connection.protocol_version, PROTOCOL_VERSION)
    asked.authChallenge.challenge.auth_method_name = connection.auth_method
    asked.authChallenge.challenge.auth_data = _REFRESH
    connection.answer(asked)


def ping(connection: PulsarConnection, command: CommandPing, entry: memoryview) -> None:
    """Say that the broker lives."""
    answer = BaseCommand(type=BaseCommand.PONG)
    answer.pong.SetInParent()
    connection.answer(answer)


def pong(connection: PulsarConnection, command: CommandPong, entry: memoryview) -> None:
    """Whatever a client says tells that it lives."""
