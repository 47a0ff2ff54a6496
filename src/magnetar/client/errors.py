"""What can go wrong between a client and a cluster."""

from __future__ import annotations

from magnetar.wire.kafka.errors import ErrorCode


class ClientError(Exception):
    """A cluster cannot be reached, or does not do what it was asked for."""

    retriable = False


class BrokerUnreachable(ClientError):
    """No broker answers, or a connection broke."""

    retriable = True


class NoConnection(BrokerUnreachable):
    """Nobody takes a connection there."""


class BrokerRefused(ClientError):
    """A broker answered with one of Kafka's error codes."""

    def __init__(self, code: int, what: str, message: str | None = None) -> None:
        known = code in ErrorCode._value2member_map_
        name = ErrorCode(code).name if known else f"error {code}"
        super().__init__(f"{what}: {name}" + (f" ({message})" if message else ""))
        self.code = code
        self.what = what
        self.message = message
        self.retriable = known and ErrorCode(code).retriable

    @property
    def out_of_order(self) -> bool:
        """Whether a batch did not follow the one that the broker knew as the producer's last."""
        return self.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise `BrokerRefused` unless the code is 0."""
    if code:
        raise BrokerRefused(code, what, message)
