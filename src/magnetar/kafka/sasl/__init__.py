"""The mechanisms of SASL that are served: one file each. An exchange takes what the client says, and answers.

    exchange = begin(broker, "SCRAM-SHA-256")
    challenge = await exchange.take(said, address)     what to answer; AuthenticationFailed ends it
    exchange.proof                                     who the client is, once it is known

Which mechanism takes how many turns is its own affair.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from magnetar.kafka.sasl.between_brokers import BrokerLogin
from magnetar.kafka.sasl.exchange import Exchange, Proof
from magnetar.kafka.sasl.oauthbearer import BearerLogin
from magnetar.kafka.sasl.plain import PlainExchange
from magnetar.kafka.sasl.scram import ScramLogin
from magnetar.wire.kafka.mechanisms import BETWEEN_BROKERS

if TYPE_CHECKING:
    from magnetar.broker.core import Broker

__all__ = ["SERVED", "Exchange", "Proof", "begin"]

_EXCHANGES: dict[str, Callable[[Broker, str], Exchange]] = {
    "PLAIN": PlainExchange,
    "OAUTHBEARER": BearerLogin,
    "SCRAM-SHA-256": ScramLogin,
    "SCRAM-SHA-512": ScramLogin,
}
SERVED = tuple(_EXCHANGES)
"""What settings may enable for clients."""
_EXCHANGES[BETWEEN_BROKERS] = BrokerLogin


def begin(broker: Broker, mechanism: str) -> Exchange:
    """Return a new exchange of a mechanism that is served."""
    return _EXCHANGES[mechanism](broker, mechanism)
