"""``magnetar ledger verify`` and ``repair`` look at tiered storage: at what lies there, and what nobody needs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from magnetar.doctor.ledgers import Gravity, verify
from magnetar.doctor.ledgers_repair import repair
from magnetar.ledger.tiers.objects import CLUSTER_ATTRIBUTE, CLUSTER_ID
from magnetar.ledger.tiers.place import TierPlace
from magnetar.ledger.tiers.tiers import TierSettings, open_store
from magnetar.metadata.ops import ANY, Delete, Put
from tests.ledger.entries import read_all
from tests.offload.house import TieredHouse, filled, sealed

ENTRIES, LEDGERS = 600, 3


@pytest.fixture
async def data(tmp_path: Path, place: TierPlace) -> Path:
    """A directory, closed in order, two of whose ledgers lie in tiered storage alone, and one here as well."""
    data = tmp_path / "data"
    data.mkdir()
    house = TieredHouse(data)
    await house.begin()
    await house.metadata.commit([Put(CLUSTER_ID, b"mine", ANY)])
    log = await house.log()
    await filled(log, ENTRIES)
    assert len(sealed(log)) == LEDGERS
    for ledger_id in sealed(log):
        await log.offload(ledger_id, place)
    await log.delete_local(sealed(log)[:-1])
    await house.end()
    return data


def test_what_lies_there_is_read(data: Path) -> None:
    report = verify(data)
    assert report.findings == ()
    assert (report.entries, report.ledgers) == (ENTRIES, LEDGERS + 1)


def test_damage_there_is_found_and_never_given_up(data: Path, tmp_path: Path, place: TierPlace) -> None:
    if place.path == "":
        pytest.skip("the same object, changed by other means")
    keys = sorted(each.key for each in open_store(place, TierSettings()).listed())
    key = next(each for each in keys if each.endswith(f"-ledger-{_first(data)}"))
    path = Path(place.path) / key
    whole = path.read_bytes()
    path.write_bytes(whole[:9000] + bytes([whole[9000] ^ 1]) + whole[9001:])
    (finding,) = verify(data).findings
    assert finding.gravity is Gravity.damage
    assert key in finding.what
    assert "restore the object" in finding.do
    assert not repair(data, drop_damaged=True).lost, "offsets are not given up for it"
    path.unlink()
    (finding,) = verify(data).findings
    assert "is not where the metadata says" in finding.what
    path.write_bytes(whole)
    assert verify(data).is_whole


def _first(data: Path) -> int:
    found = sorted(int(path.stem, 16) for path in data.glob("ledgers/*/*.ledger"))
    return next(each for each in range(found[-1]) if each not in found)


async def test_what_nobody_refers_to_goes_and_others_stay(data: Path, place: TierPlace) -> None:
    store = open_store(place, TierSettings())
    before = {each.key for each in store.listed()}
    uuid = "11111111-2222-3333-4444-555555555555"
    store.put(f"{uuid}-ledger-0", [b"left behind"], {CLUSTER_ATTRIBUTE: "mine"})
    store.put(f"{uuid}-ledger-1", [b"another cluster's"], {CLUSTER_ATTRIBUTE: "theirs"})
    store.put("a-file-of-somebody", [b"and that"], {})
    (finding,) = (await asyncio.to_thread(verify, data)).findings
    assert finding.gravity is Gravity.wear
    assert f"{uuid}-ledger-0" in finding.what
    done = await asyncio.to_thread(repair, data)
    assert [f"{uuid}-ledger-0" in each.file for each in done.actions] == [True]
    assert done.left == ()
    assert {each.key for each in store.listed()} == before | {f"{uuid}-ledger-1", "a-file-of-somebody"}
    house = TieredHouse(data)
    await house.begin()
    assert len(await read_all(await house.log())) == ENTRIES
    await house.end()


async def test_a_directory_that_does_not_know_its_cluster_calls_nothing_its_own(
    data: Path, place: TierPlace
) -> None:
    house = TieredHouse(data)
    await house.begin()
    await house.metadata.commit([Delete(CLUSTER_ID, ANY)])
    await house.end()
    store = open_store(place, TierSettings())
    store.put("11111111-2222-3333-4444-555555555555-ledger-0", [b"whose?"], {CLUSTER_ATTRIBUTE: ""})
    assert (await asyncio.to_thread(verify, data)).findings == ()
