"""The settings of the admin REST."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.base.setting import HandlerSettings, setting
from magnetar.base.values import Kind


@dataclass(frozen=True, slots=True)
class AdminSettings(HandlerSettings):
    """The admin REST."""

    http_listeners: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Addresses to serve Pulsar's admin REST on, http://HOST:PORT or https://HOST:PORT each; empty for none.",
    )
    http_advertised_listeners: tuple[str, ...] = setting(
        (),
        Kind.LIST,
        "Addresses of the admin REST API returned to clients, in the order of http.listeners.",
    )
    web_service_port: str = setting(
        "",
        Kind.STRING,
        "Port on bind.address to serve Pulsar's admin REST on where http.listeners (--http) says nothing; empty for "
        "none.",
    )
    web_service_port_tls: str = setting(
        "", Kind.STRING, "Port on which Pulsar's admin REST is served over TLS (https); empty for none."
    )

    console_enabled: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether the console is served at /console, on the port of the admin REST. It shows each client what its "
        "grants let it see, and is loaded by the first request for it.",
    )
    console_read_only: bool = setting(
        True,
        Kind.BOOLEAN,
        "Whether the console only shows. With false it has forms that produce records, move groups and change topics, "
        "for clients whose grants allow that by the admin REST, too.",
    )

    mcp_enabled: bool = setting(
        False,
        Kind.BOOLEAN,
        "Whether MCP is served at /mcp, on the port of the admin REST: read-only tools for assistants, which give each "
        "client what its grants let it see.",
    )

    @property
    def asks_to_serve(self) -> bool:
        return True  # this machine's operators are always answered, on the socket in the data directory

    @property
    def serves_http(self) -> bool:
        """Whether there are listeners."""
        return bool(self.http_listeners or self.web_service_port or self.web_service_port_tls)
