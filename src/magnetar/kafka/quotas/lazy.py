"""Clients' quotas once there are any: most brokers never have, and go without their modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.kafka.settings import KafkaSettings
from magnetar.metadata.when_there import WhenThere
from magnetar.serving.memory import MemoryBudget

if TYPE_CHECKING:
    from magnetar.kafka.quotas.managers import QuotaManagers
    from magnetar.topics.client_quotas import ClientQuotas


class LazyQuotas:
    """The quotas of one broker's clients, made when somebody is given one."""

    __slots__ = ("_memory", "_settings", "_stored", "enabled", "made")

    def __init__(
        self, stored: WhenThere[ClientQuotas], memory: MemoryBudget, settings: KafkaSettings
    ) -> None:
        self._stored = stored
        self._memory = memory
        self._settings = settings
        self.enabled = False
        """Whether any client has a quota, addresses left aside."""
        self.made: QuotaManagers | None = None
        stored.then(self._begin)

    def _begin(self, quotas: ClientQuotas) -> None:
        from magnetar.kafka.quotas.managers import QuotaManagers

        account = self._memory.account(lambda: None, known=True)
        self.made = QuotaManagers(quotas, self._settings, account)
        quotas.changed.append(self._changed)  # behind that of those
        self._changed()

    def _changed(self) -> None:
        self.enabled = self.made is not None and self.made.enabled

    def get(self) -> QuotaManagers:
        """Return them."""
        if self.made is None:
            self._stored.get()
        assert self.made is not None
        return self.made

    def connected(self, address: str) -> int:
        """Count a connection from somewhere that has a quota of them; return for how many ms it has to wait."""
        return 0 if self.made is None else self.made.connected(address)
