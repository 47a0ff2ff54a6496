"""A managed ledger of Pulsar's brokers, as its metadata have it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from magnetar.ledger.formats.info import ROOT, ManagedLedgerInfo
from magnetar.metadata import MetadataStore, Stored
from magnetar.metadata.segments import decoded
from magnetar.records.entry import Entry

PARTITION = re.compile(r"(.+)-partition-\d+")
OF_SYSTEM = re.compile(
    r"__change_events|__transaction_.*|transaction_coordinator_.*|.*__transaction_pending_ack"
    r"|loadbalancer-.*|healthcheck"
)


@dataclass(slots=True)
class PulsarLog:
    """A managed ledger as it is kept, with its cursors."""

    namespace: str
    encoded: str
    """Its name in the path."""
    stored: Stored
    info: ManagedLedgerInfo
    cursors: dict[str, Stored]
    """By the name in the path."""
    ends: dict[int, list[Entry]] = field(default_factory=dict)
    """The first and the last entry of ledgers, by their id."""

    @property
    def local(self) -> str:
        return decoded(self.encoded)

    @property
    def name(self) -> str:
        return f"{self.namespace}/{self.local}"

    @property
    def path(self) -> str:
        return f"{ROOT}/{self.namespace}/persistent/{self.encoded}"

    @property
    def compaction(self) -> bytes | None:
        """The node of the cursor that says how far Pulsar has compacted it."""
        found = self.cursors.get("__compaction")
        return None if found is None else found.value

    @property
    def is_of_system(self) -> bool:
        """Whether Pulsar's brokers have it for themselves."""
        tenant, _, namespace = self.namespace.partition("/")
        if self.base == "__transaction_state":
            return False  # Kafka's: KoP's, or one from here
        return bool(OF_SYSTEM.fullmatch(self.base)) or (tenant == "pulsar" and ":" in namespace)

    @property
    def base(self) -> str:
        found = PARTITION.fullmatch(self.local)
        return found[1] if found else self.local


async def nodes_below(store: MetadataStore, path: str, levels: int) -> list[str]:
    """Return the paths that lie so many levels beneath ``path``."""
    paths = [path]
    for _ in range(levels):
        paths = [f"{each}/{name}" for each in paths for name in await store.children(each)]
    return paths
