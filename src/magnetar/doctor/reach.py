"""Whether clients reach a broker: ports, advertised addresses, certificates and their names."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import ssl
import struct
import time
from collections.abc import Callable

from cryptography import x509

from magnetar.admin.broker_state import BrokerState, ServedListener
from magnetar.base.errors import BrokerError
from magnetar.doctor.bounded import bounded
from magnetar.doctor.findings import Grade, Looked
from magnetar.node.handlers import arranged, asked_for
from magnetar.node.vitals import ending_soon
from magnetar.serving.listeners import CannotListen, check_free, is_loopback
from magnetar.settings.settings import Settings
from magnetar.wire.kafka.messages.api_versions_request import ApiVersionsRequest

CONNECT_S = 3.0
_WHOLE_S = 10.0
_EVERYWHERE = ("", "0.0.0.0", "::")
_SOFTWARE = "magnetar-doctor"
_API_VERSIONS_KEY, _VERSION = 18, 3
_WHY = "clients connect to what the broker tells them, whatever they reached it by"
_WHY_NAMES = "clients compare the name that they connect to with those in the certificate"


def look_at_listeners(looked: Looked, state: BrokerState, knows: Callable[[str], bool]) -> None:
    """Try each listener of a running broker; ``knows`` tells whether it has a client that calls itself so."""
    for listener in state.listeners:
        _bound(looked, listener)
        _advertised(looked, listener, knows if state.workers == 1 else None)
    ends = {
        f"{each.name} {each.bind_host}:{each.bind_port}": each.certificate_ends
        for each in state.listeners
        if each.certificate_ends is not None
    }
    for name, end in ends.items():
        looked.measured[f"certificate {name}"] = time.strftime("until %Y-%m-%d", time.gmtime(end))
    _certificates(looked, ends)


def look_at_ports(looked: Looked, settings: Settings) -> None:
    """See whether a broker that starts with these settings could serve."""
    try:
        asked = asked_for(settings)
        wanted = [
            each for made in arranged(settings) if made.protocol_name in asked for each in made.listeners()
        ]
    except (BrokerError, OSError) as error:
        looked.add(
            Grade.error,
            "settings",
            str(error),
            "a broker does not start with that",
            "mend the setting that it names",
        )
        return
    ends: dict[str, float] = {}
    for each in wanted:
        try:
            check_free(each)
        except CannotListen as error:
            looked.add(
                Grade.error, "ports", str(error), "no broker starts there",
                f"find what serves there (ss -ltnp 'sport = :{each.bind.port}'), or choose another port",
            )  # fmt: skip
        end = getattr(each.context, "ends_at", lambda: None)()
        if end is not None:
            ends[f"{each.name} {each.bind}"] = end
    _certificates(looked, ends)


def _certificates(looked: Looked, ends: dict[str, float]) -> None:
    now = time.time()
    if text := ending_soon(ends, now):
        over = min(ends.values()) < now
        looked.add(
            Grade.error if over else Grade.warning, "certificates", text,
            "after its end clients refuse to connect", "renew it: a file that is replaced is read without a restart",
        )  # fmt: skip


def _bound(looked: Looked, listener: ServedListener) -> None:
    host = "127.0.0.1" if listener.bind_host in _EVERYWHERE else listener.bind_host
    try:
        socket.create_connection((host, listener.bind_port), CONNECT_S).close()
    except OSError as error:
        looked.add(
            Grade.error, "ports", f"listener {listener.name} does not answer at {host}:{listener.bind_port}: {error}",
            "no client on this machine gets in", "look at firewall rules of the loopback device, and at the log",
        )  # fmt: skip


def _advertised(looked: Looked, listener: ServedListener, knows: Callable[[str], bool] | None) -> None:
    place = f"{listener.host}:{listener.port}"
    name = f"{listener.name} {listener.scheme or 'kafka'} {place}"
    if is_loopback(listener.host) and not is_loopback(listener.bind_host):
        looked.add(
            Grade.warning, "advertised",
            f"listener {listener.name} serves on {listener.bind_host or 'all interfaces'} and tells clients {place}",
            f"{_WHY}: those on other machines look for it on their own",
            "set advertised.listeners (or advertised.address) to a name that all clients resolve",
        )  # fmt: skip
    try:
        told = bounded(_WHOLE_S, lambda: _reached(looked, listener, knows))
    except socket.gaierror as error:
        looked.add(
            Grade.error, "advertised", f"{listener.host}, which listener {listener.name} tells clients, does not "
            f"resolve here: {error.strerror}", _WHY, "set advertised.listeners to a name that resolves",
        )  # fmt: skip
    except (OSError, TimeoutError) as error:
        looked.add(
            Grade.error, "advertised", f"{place}, which listener {listener.name} tells clients, cannot be reached from "
            f"here: {error}", _WHY, "set advertised.listeners, or open that port on the way",
        )  # fmt: skip
    else:
        looked.measured[f"advertised {name}"] = told


def _reached(looked: Looked, listener: ServedListener, knows: Callable[[str], bool] | None) -> str:
    """Connect as a client would; return what that shows."""
    with socket.create_connection((listener.host, listener.port), CONNECT_S) as plain:
        wire: socket.socket = plain
        if listener.tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = (
                False,
                ssl.CERT_NONE,
            )  # a name is compared, not trusted
            wrapped = context.wrap_socket(plain, server_hostname=listener.host)
            _names(looked, listener, wrapped.getpeercert(binary_form=True) or b"")
            wire = wrapped
        if listener.scheme or listener.client_auth == "required" or knows is None:
            return "connected"
        nonce = secrets.token_hex(8)
        wire.sendall(_hello(nonce))
        if not wire.recv(4):
            raise ConnectionError("it closed the connection")
        if not knows(nonce):
            looked.add(
                Grade.error, "advertised", f"at {listener.host}:{listener.port}, which listener {listener.name} tells "
                "clients, something else than this broker answers", _WHY,
                "set advertised.listeners to where this broker is reached",
            )  # fmt: skip
            return "another one answers"
    return "reaches this broker"


def _hello(nonce: str) -> bytes:
    body = ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version=nonce).encode(_VERSION)
    header = struct.pack(">hhih", _API_VERSIONS_KEY, _VERSION, 1, len(_SOFTWARE)) + _SOFTWARE.encode() + b"\0"
    frame = header + bytes(body)
    return struct.pack(">i", len(frame)) + frame


def _names(looked: Looked, listener: ServedListener, der: bytes) -> None:
    try:
        names = x509.load_der_x509_certificate(der).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
        hosts = [each.lower() for each in names.value.get_values_for_type(x509.DNSName)]
        addresses = [str(each) for each in names.value.get_values_for_type(x509.IPAddress)]
    except (ValueError, x509.ExtensionNotFound):
        hosts, addresses = [], []
    if covers(listener.host, hosts, addresses):
        return
    there = ", ".join([*hosts, *addresses][:5]) or "none"
    looked.add(
        Grade.warning, "certificates",
        f"the certificate of listener {listener.name} is not for {listener.host}, but for: {there}",
        _WHY_NAMES, f"have one made with {listener.host} among its alternative names, or advertise one of these",
    )  # fmt: skip


def covers(host: str, hosts: list[str], addresses: list[str]) -> bool:
    """Return whether a certificate with these names is for ``host``; a star stands for one label (RFC 6125)."""
    try:
        return str(ipaddress.ip_address(host)) in addresses
    except ValueError:
        host = host.lower().rstrip(".")
    _, dot, domain = host.partition(".")
    return host in hosts or (bool(dot) and f"*.{domain}" in hosts)
