"""Where the admin REST is served: ``http://HOST:PORT`` and ``https://HOST:PORT``."""

from __future__ import annotations

from magnetar.admin.settings import AdminSettings
from magnetar.serving.listeners import Listener
from magnetar.serving.url_listeners import HTTP, url_listeners, with_ports
from magnetar.settings.settings import Settings


def parse_web_listeners(settings: Settings) -> tuple[Listener, ...]:
    """Return where the admin REST is to be served, or raise `InvalidConfig`; none where nothing is set."""
    own = settings.of(AdminSettings)
    ports = own.web_service_port, own.web_service_port_tls
    served = with_ports(own.http_listeners, ports, HTTP, settings)
    return url_listeners("http", served, own.http_advertised_listeners, HTTP, settings)
