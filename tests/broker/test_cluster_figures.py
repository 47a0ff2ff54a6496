"""What a broker of a cluster tells of its session, of bundles and of bookies."""

from __future__ import annotations

from magnetar.cluster.cluster_figures import ClusterFigures, waits_for_bookies
from magnetar.cluster.cluster_ownership import ClusterOwnership
from magnetar.ledger.bookkeeper.well_being import BookiesHealth
from magnetar.metadata.memory import MemoryStore, MemoryTree
from magnetar.serving.listeners import Endpoint
from tests.broker.test_even_ownership import until

NAMESPACE = "public/default"


def told(figures: ClusterFigures) -> dict[str, float]:
    return {
        family.name: value
        for table in figures(None)
        if table is not None
        for family, value in zip(table.families, table.rows[0][1:], strict=True)
    }


async def test_bundles_and_sessions_are_counted() -> None:
    store, health = MemoryStore(MemoryTree()), BookiesHealth()
    made = ClusterOwnership(store, "c", 1, None, 4, 4.0)
    await made.start()
    made.listens("http", Endpoint("127.0.0.1", 8080))
    await made.begin(lambda: [NAMESPACE])
    await until(lambda: len(made.mine()) == 4)
    figures = ClusterFigures(made, store, health)
    found = told(figures)
    assert found["magnetar_bundles_owned"] == found["magnetar_bundles_taken_total"] == 4
    assert found["magnetar_bundles_without_owner"] == found["magnetar_bundles_released_total"] == 0
    assert found["magnetar_zookeeper_sessions_total"] == found["magnetar_brokers"] == 1
    assert found["magnetar_bundle_epoch"] == 1
    assert found["magnetar_bookies_ensemble_changes_total"] == 0
    health.ensemble_changes = 3
    assert told(figures)["magnetar_bookies_ensemble_changes_total"] == 3
    assert "magnetar_bookies_under_replicated_ledgers" not in found, "it was not looked at"
    health.under_replicated = 0
    assert told(figures)["magnetar_bookies_under_replicated_ledgers"] == 0
    await store.lose_session()
    await until(lambda: len(made.mine()) == 4)
    found = told(figures)
    assert found["magnetar_zookeeper_sessions_total"] == 2
    assert found["magnetar_bundles_released_total"] == 4
    assert found["magnetar_bundle_epoch"] == 2
    await made.close()


def test_bookies_that_take_nothing_are_told_until_they_do() -> None:
    health = BookiesHealth()
    assert waits_for_bookies(health) == []
    health.created(-6, "too few bookies take entries")
    assert waits_for_bookies(health) == ["no ledger can be written: too few bookies take entries"]
    health.appended(-101, "another owner has fenced the ledger")
    assert health.trouble == "too few bookies take entries", "which says nothing of bookies"
    health.appended(0, "")
    assert waits_for_bookies(health) == []
    assert (health.failed_creations, health.failed_appends) == (1, 1)
