"""Pulsar's JSON of racks is read and written, changes lose none, and groups say which bookies are left out."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.ledger.bookie_racks import (
    BOOKIES,
    BookieInfo,
    BookiePlacement,
    Groups,
    RacksFollower,
    RacksInvalid,
    change_racks,
    decode_racks,
    encode_racks,
    read_racks,
    with_bookie,
    without_bookie,
)
from magnetar.metadata import ANY, Delete, MemoryStore, Put
from tests.turns import until

NAMES = st.sampled_from(["a:1", "b:1", "c:1", "d:1", "e:1"])
GROUPS = st.dictionaries(
    st.sampled_from(["mine", "help", "other"]),
    st.dictionaries(NAMES, st.builds(BookieInfo, st.just("/r"), st.sampled_from(["", "h"])), min_size=1),
)


@given(GROUPS)
def test_what_is_written_is_read(groups: Groups) -> None:
    assert decode_racks(encode_racks(groups)) == groups


def test_what_pulsar_writes_is_read() -> None:
    told = b'{"default":{"bookie-1:3181":{"rack":"east/rack-1","hostname":"bookie-1"},"b:1":{"rack":"/r"}}}'
    (first, second) = decode_racks(told)["default"].values()
    assert (first.location, second.location) == ("/east/rack-1", "/r")
    assert decode_racks(b"") == {}


@pytest.mark.parametrize(
    "told",
    [b"{", b"[]", b'{"g": []}', b'{"g": {"b:1": {}}}', b'{"g": {"b:1": {"rack": "/"}}}', b'{"g": {"b:1": 1}}',
     b'{"g": {"b:1": {"rack": "/r", "hostname": 1}}}', b"[" * 100_000, b"\xff"],
)  # fmt: skip
def test_what_is_no_such_json_is_told_of(told: bytes) -> None:
    with pytest.raises(RacksInvalid, match="/bookies"):
        decode_racks(told)


async def test_where_bookies_are_is_followed(caplog: pytest.LogCaptureFixture) -> None:
    store, placed = MemoryStore(), list[Groups]()
    other = MemoryStore(store.blocking)  # type: ignore[arg-type]
    await change_racks(other, lambda _: {"g": {"a:1": BookieInfo("/1")}})

    async def place(groups: Groups) -> None:
        placed.append(groups)

    follower = RacksFollower(store, place)
    await follower.start()
    assert placed == [{"g": {"a:1": BookieInfo("/1")}}]
    await other.commit([Put(BOOKIES, b"no JSON", ANY)])
    await until(lambda: "bookies are placed as before" in caplog.text)
    await other.commit([Put(BOOKIES, encode_racks({"g": {"a:1": BookieInfo("/2")}}), ANY)])
    await until(lambda: len(placed) == 2)
    await other.commit([Delete(BOOKIES, ANY)])
    await until(lambda: len(placed) == 3)
    await follower.close()
    assert placed[1:] == [{"g": {"a:1": BookieInfo("/2")}}, {}]


@given(GROUPS, NAMES)
def test_a_bookie_is_of_one_group(groups: Groups, bookie: str) -> None:
    info = BookieInfo("/new")
    after = with_bookie(groups, "g", bookie, info)
    assert after["g"][bookie] == info
    assert sum(bookie in members for members in after.values()) == 1
    assert without_bookie(after, bookie) == without_bookie(groups, bookie)


async def test_changes_of_two_brokers_are_both_kept() -> None:
    store = MemoryStore()
    other = MemoryStore(store.blocking)  # type: ignore[arg-type]

    async def added(on: MemoryStore, name: str) -> None:
        await change_racks(on, lambda groups: with_bookie(groups, "g", name, BookieInfo("/r")))

    await asyncio.gather(*(added((store, other)[at % 2], f"{at}:1") for at in range(20)))
    assert len((await read_racks(store))["g"]) == 20


@given(GROUPS, st.sets(NAMES), st.integers(1, 4))
def test_ledgers_are_on_own_groups_and_on_those_that_help_where_need_be(
    groups: Groups, known: set[str], ensemble: int
) -> None:
    place = BookiePlacement(isolation_groups=["mine"], secondary_groups=["help"])
    own, help_ = (set(groups.get(name, ())) & known for name in ("mine", "help"))
    allowed = known - place.excluded(groups, known, ensemble)
    assert allowed == (own if len(own) >= ensemble else own | help_)
    assert BookiePlacement(secondary_groups=["help"]).excluded(groups, known, ensemble) == set()
