"""Connected clients that are too old for something, by the versions of the APIs that they ask for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from magnetar.admin.broker_state import ClientsOfSoftware
from magnetar.doctor.findings import Grade, Looked
from magnetar.wire.kafka.messages import API_KEYS

NEEDED: tuple[tuple[str, int, str], ...] = (
    ("Produce", 7, "cannot write records compressed by zstd (KIP-110)"),
    ("Fetch", 10, "cannot read records compressed by zstd (KIP-110)"),
    ("Fetch", 7, "name all their partitions in each request, as they know no fetch sessions (KIP-227)"),
    ("JoinGroup", 5, "cannot have group.instance.id, so that each restart is a rebalance (KIP-345)"),
    ("InitProducerId", 3, "end with an error where others begin a new epoch and go on (KIP-360)"),
    (
        "TxnOffsetCommit",
        3,
        "may commit offsets of a transaction after they have lost their partitions (KIP-447)",
    ),
    ("OffsetFetch", 7, "may read offsets that a transaction is about to change (KIP-447)"),
)
"""By API, the first version with which the sentence is not true any more."""


def cut_off(
    clients: Iterable[ClientsOfSoftware], minimum: Mapping[str, int] | None = None
) -> Iterator[tuple[ClientsOfSoftware, str, int, int]]:
    """Yield clients with an API, the version that they ask for, and the lowest that is served, where that is higher.

    ``minimum`` is by the API's name, of this release by default; an API that it lacks is not served at all.
    """
    served = {name: low for name, low, _, _ in API_KEYS.values()} if minimum is None else minimum
    for each in clients:
        for api, version in sorted(each.lowest.items()):
            lowest = served.get(api, version + 1)
            if version < lowest:
                yield each, api, version, lowest


def look_at_clients(looked: Looked, clients: Iterable[ClientsOfSoftware]) -> None:
    """Add a note for each kind that is too old for something."""
    clients = list(clients)
    looked.measured["clients"] = f"{sum(each.connections for each in clients):,} of {len(clients):,} kinds"
    for each in clients:
        lacks = [text for api, first, text in NEEDED if each.lowest.get(api, first) < first]
        if lacks:
            looked.add(
                Grade.note,
                "clients",
                f"{each.connections:,} clients ({named(each)}) {'; '.join(lacks)}",
                "they are served, and lack what newer ones have",
                "upgrade them when you can; 'magnetar upgrade --check' of a newer release says whether it serves them",
            )


def named(clients: ClientsOfSoftware) -> str:
    """Return how clients call themselves."""
    if clients.software == "unknown":
        return "which do not name their software: librdkafka before 1.4, Java before 2.4, or others"
    return f"{clients.software} {clients.version}".strip()
