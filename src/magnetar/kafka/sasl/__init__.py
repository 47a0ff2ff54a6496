"""The mechanisms of SASL that are served: one file each. An exchange takes what the client says, and answers.

    exchange = begin(security, "SCRAM-SHA-256")
    challenge = await exchange.take(said, address)     what to answer; AuthenticationFailed ends it
    exchange.proof                                     who the client is, once it is known

Which mechanism takes how many turns is its own affair.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from magnetar.kafka.sasl.exchange import Exchange, Proof
from magnetar.wire.kafka.mechanisms import BETWEEN_BROKERS

if TYPE_CHECKING:
    from magnetar.auth.security import Security

__all__ = ["SERVED", "Exchange", "Proof", "begin"]

# By their modules and classes: a broker loads those that somebody logs in by.
_EXCHANGES = {
    "PLAIN": ("plain", "PlainExchange"),
    "OAUTHBEARER": ("oauthbearer", "BearerLogin"),
    "SCRAM-SHA-256": ("scram", "ScramLogin"),
    "SCRAM-SHA-512": ("scram", "ScramLogin"),
}
SERVED = tuple(_EXCHANGES)
"""What settings may enable for clients."""
_EXCHANGES[BETWEEN_BROKERS] = ("between_brokers", "BrokerLogin")


def begin(security: Security, mechanism: str, listener: str = "") -> Exchange:
    """Return a new exchange of a mechanism that is served, at a listener, which may have users of its own."""
    module, name = _EXCHANGES[mechanism]
    exchange: Callable[[Security, str, str], Exchange] = getattr(import_module(f"{__name__}.{module}"), name)
    return exchange(security, mechanism, listener)
