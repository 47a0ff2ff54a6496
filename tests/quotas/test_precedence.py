"""Which quota is in force for whom, and who shares it, in Kafka's order; and that meters do not grow without bound."""

from __future__ import annotations

import pytest

from magnetar.kafka.quotas import meters
from magnetar.kafka.quotas.meters import Limit, Meters, Who, limit_of, limit_of_address
from magnetar.kafka.quotas.rates import WindowedRate, Windows
from magnetar.serving.memory import MemoryBudget
from magnetar.topics.client_quotas import DEFAULT, QuotaEntity

ORDER = [
    (QuotaEntity("alice", "app"), Who("alice", "app")),
    (QuotaEntity("alice", DEFAULT), Who("alice", "app")),
    (QuotaEntity("alice"), Who("alice", "")),
    (QuotaEntity(DEFAULT, "app"), Who("alice", "app")),
    (QuotaEntity(DEFAULT, DEFAULT), Who("alice", "app")),
    (QuotaEntity(DEFAULT), Who("alice", "")),
    (QuotaEntity(client_id="app"), Who("", "app")),
    (QuotaEntity(client_id=DEFAULT), Who("", "app")),
]
WINDOWS = Windows(11, 1000)


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_most_specific_counts(first: int) -> None:
    limits = {entity: 10.0 + number for number, (entity, _) in enumerate(ORDER) if number >= first}
    assert limit_of(limits, "alice", "app") == Limit(ORDER[first][1], 10.0 + first)
    others = {QuotaEntity("bob"): 1.0, QuotaEntity("bob", DEFAULT): 1.0, QuotaEntity(client_id="other"): 1.0}
    assert limit_of(limits | others, "alice", "app") == Limit(ORDER[first][1], 10.0 + first)


def test_nobody_else_is_limited() -> None:
    limits = {
        QuotaEntity("alice", "app"): 1.0,
        QuotaEntity(client_id="job"): 2.0,
        QuotaEntity(ip=DEFAULT): 3.0,
    }
    assert limit_of(limits, "bob", "app") is None
    assert limit_of(limits, "alice", "other") is None
    assert limit_of(limits, "bob", "job") == Limit(Who("", "job"), 2.0)


def test_a_client_without_an_id_has_quotas_of_users_alone() -> None:
    limits = dict.fromkeys((entity for entity, _ in ORDER), 1.0)
    assert limit_of(limits, "alice", "") == Limit(Who("alice", ""), 1.0)
    assert limit_of({QuotaEntity(client_id=DEFAULT): 1.0}, "alice", "") is None


def test_addresses() -> None:
    limits = {QuotaEntity(ip=DEFAULT): 1.0, QuotaEntity(ip="10.0.0.1"): 2.0}
    assert limit_of_address(limits, "", "10.0.0.1") == Limit(Who("", "10.0.0.1"), 2.0)
    assert limit_of_address(limits, "", "10.0.0.2") == Limit(Who("", "10.0.0.2"), 1.0)
    assert limit_of_address({}, "", "10.0.0.2") is None


class House:
    def __init__(self, **limits: float) -> None:
        self.now_ms = 0
        self.limits = {QuotaEntity(client_id=DEFAULT): 100.0}
        self.account = MemoryBudget(1 << 30, 1 << 30).account(lambda: None, known=True)
        self.meters = Meters(
            self.limits,
            limit_of,
            lambda: WindowedRate(WINDOWS),
            lambda rate, _: rate.is_old(self.now_ms),
            self.account,
        )

    def use(self, user: str, client_id: str) -> WindowedRate:
        metered = self.meters.of(user, client_id)
        assert metered is not None
        metered.meter.record(1, self.now_ms)
        return metered.meter


def test_a_changed_quota_counts_at_once_and_what_was_counted_stays() -> None:
    house = House()
    rate = house.use("alice", "app")
    house.limits[QuotaEntity(client_id="app")] = 7.0
    house.meters.forget_limits()
    metered = house.meters.of("alice", "app")
    assert metered is not None
    assert (metered.bound, metered.meter) == (7.0, rate)
    house.limits.clear()
    house.meters.forget_limits()
    assert house.meters.of("alice", "app") is None
    assert not house.meters.enabled


def test_clients_that_call_themselves_whatever_they_like_take_no_more_and_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(meters, "_MAX", 500)
    house = House()
    house.limits[QuotaEntity("alice")] = 50.0
    kept = house.use("alice", "")
    for number in range(4_000):
        house.use("bob", f"client-{number}")
    assert len(house.meters.all) <= 500 + 1
    assert len(house.meters._found) <= 500
    assert house.account.held_bytes == len(house.meters.all) * meters.METER_BYTES
    assert house.use("alice", "x") is kept, "whoever is known by name keeps his"
    house.now_ms += 60_000
    for number in range(400):
        house.use("bob", f"later-{number}")
    assert len(house.meters.all) == 400, "what is as good as new is gone"
    assert house.use("bob", "n" * 30_000) is house.use("bob", "n" * 30_000)
    assert house.use("bob", "n" * 30_000) is not house.use("bob", "m" * 30_000)
    assert max(len(who.client_id) for who in house.meters.all) < 100
