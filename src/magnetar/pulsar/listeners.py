"""Where Pulsar's clients are served: ``pulsar://HOST:PORT`` and ``pulsar+ssl://HOST:PORT``."""

from __future__ import annotations

from magnetar.pulsar.settings import PulsarSettings
from magnetar.serving.listeners import Listener
from magnetar.serving.url_listeners import url_listeners, with_ports
from magnetar.settings.settings import Settings

_SCHEMES = {"pulsar": "PULSAR", "pulsar+ssl": "PULSAR_SSL"}


def parse_pulsar_listeners(settings: Settings) -> tuple[Listener, ...]:
    """Return where the binary protocol is to be served, or raise `InvalidConfig`; none where nothing is set."""
    own = settings.of(PulsarSettings)
    ports = own.broker_service_port, own.broker_service_port_tls
    served = with_ports(own.pulsar_listeners, ports, _SCHEMES, settings)
    return url_listeners("pulsar", served, own.pulsar_advertised_listeners, _SCHEMES, settings)
