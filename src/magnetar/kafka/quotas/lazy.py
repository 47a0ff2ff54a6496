"""Clients' quotas once there are any: most brokers never have, and go without their modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.settings import KafkaSettings
from magnetar.node.broker import Broker

if TYPE_CHECKING:
    from magnetar.kafka.quotas.managers import QuotaManagers
    from magnetar.topics.client_quotas import ClientQuotas


class LazyQuotas:
    """The quotas of one broker's clients, made when somebody is given one."""

    __slots__ = ("_broker", "_settings", "enabled", "made")

    def __init__(self, broker: Broker, settings: KafkaSettings) -> None:
        self._broker = broker
        self._settings = settings
        self.enabled = False
        """Whether any client has a quota, addresses left aside."""
        self.made: QuotaManagers | None = None
        broker.quotas_of_clients.then(self._begin)

    def _begin(self, quotas: ClientQuotas) -> None:
        from magnetar.kafka.quotas.managers import QuotaManagers

        account = self._broker.serving.memory.account(lambda: None, known=True)
        self.made = QuotaManagers(quotas, self._settings, account)
        quotas.changed.append(self._changed)  # behind that of those
        self._changed()

    def _changed(self) -> None:
        self.enabled = self.made is not None and self.made.enabled

    def get(self) -> QuotaManagers:
        """Return them."""
        if self.made is None:
            self._broker.quotas_of_clients.get()
        assert self.made is not None
        return self.made

    def connected(self, address: str) -> int:
        """Count a connection from somewhere that has a quota of them; return for how many ms it has to wait."""
        return 0 if self.made is None else self.made.connected(address)
