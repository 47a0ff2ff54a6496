"""Figures of a broker in a cluster: its session with ZooKeeper, bundles, and bookies.

Counted by this process since its start; `docs/cluster.md` explains each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from magnetar.auth import Access
from magnetar.cluster.cluster_ownership import ClusterOwnership
from magnetar.figures.figures import Family, FigureTable
from magnetar.metadata.port import MetadataStore


class LedgerMaking(Protocol):
    """The health of bookies, by the engine; see `magnetar.ledger.bookkeeper.well_being.BookiesHealth`."""

    trouble: str
    failed_appends: int
    failed_creations: int
    ensemble_changes: int
    under_replicated: int | None


class ClusterFigures:
    """Tables of these figures; see `magnetar.figures.figures.Source`."""

    def __init__(
        self, ownership: ClusterOwnership, store: MetadataStore, bookies: LedgerMaking | None
    ) -> None:
        self._ownership = ownership
        self._store = store
        self._bookies = bookies

    def __call__(self, access: Access | None) -> Iterator[FigureTable | None]:
        """Yield the tables if the client may see everything: nothing here belongs to one tenant."""
        if access is not None:
            return
        ownership = self._ownership
        owned, ownerless, latest = ownership.tally()
        session: Any = self._store.session
        yield _table("magnetar_zookeeper_connected", "gauge", "1 while a server of ZooKeeper's is connected.",
                     int(getattr(session, "connected", True)))  # fmt: skip
        yield _table("magnetar_zookeeper_sessions_total", "counter",
                     "Sessions there have been: more than one says that some were lost.",
                     ownership.sessions)  # fmt: skip
        yield _table("magnetar_zookeeper_answer_seconds", "gauge",
                     "How long the last answer took, or one is waited for by now.",
                     getattr(session, "answer_s", 0.0))  # fmt: skip
        yield _table("magnetar_brokers", "gauge", "Brokers that live, as this one sees it.",
                     len(ownership.brokers()))  # fmt: skip
        yield _table("magnetar_bundles_owned", "gauge", "Bundles that this broker has.", owned)
        yield _table("magnetar_bundles_without_owner", "gauge",
                     "Bundles of the cluster that nobody has, as this broker sees it.", ownerless)  # fmt: skip
        yield _table(
            "magnetar_bundle_epoch", "gauge", "Latest epoch of the bundles that this broker has.", latest
        )
        yield _table(
            "magnetar_bundles_taken_total", "counter", "Bundles that this broker took.", ownership.taken
        )
        yield _table("magnetar_bundles_released_total", "counter",
                     "Bundles that this broker let go of, or lost with a session.", ownership.released)  # fmt: skip
        yield None
        bookies = self._bookies
        if bookies is not None:
            yield _table("magnetar_bookies_writable", "gauge",
                         "0 while too few bookies take entries: no ledger can be written.",
                         int(not bookies.trouble))  # fmt: skip
            yield _table("magnetar_bookies_failed_appends_total", "counter",
                         "Entries that bookies did not keep.", bookies.failed_appends)  # fmt: skip
            yield _table("magnetar_bookies_failed_ledgers_total", "counter",
                         "Ledgers that could not be made.", bookies.failed_creations)  # fmt: skip
            yield _table("magnetar_bookies_ensemble_changes_total", "counter",
                         "Bookies that took another's place while a ledger was written, told when it ends.",
                         bookies.ensemble_changes)  # fmt: skip
            if bookies.under_replicated is not None:
                yield _table("magnetar_bookies_under_replicated_ledgers", "gauge",
                             "Ledgers with too few copies, 1000 at most, as the leader of the brokers sees it.",
                             bookies.under_replicated)  # fmt: skip


def waits_for_bookies(bookies: LedgerMaking) -> Sequence[str]:
    """Return what prevents this broker from writing, for ``/ready``."""
    return [f"no ledger can be written: {bookies.trouble}"] if bookies.trouble else []


def _table(name: str, kind: str, text: str, value: float) -> FigureTable:
    return FigureTable((Family(name, kind, text),), [("", value)])
