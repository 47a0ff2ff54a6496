"""BookKeeper's own policies, asked as its client asks them, keep to racks, to regions, and to what is left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.ledger.bookie_racks import BookieInfo, BookiePlacement, Groups
from tests.cluster.servers import class_path

class_path()  # skips the module where BookKeeper's client cannot be run

import jpype  # noqa: E402

from magnetar.ledger.bookkeeper import jars  # noqa: E402
from magnetar.ledger.bookkeeper.jvm import start_jvm  # noqa: E402
from magnetar.ledger.bookkeeper.placement import JavaRacks, leaving_out, set_policy  # noqa: E402

BOOKIES = [f"bookie-{number}:3181" for number in range(8)]
RACKS = ["/a", "/b", "/c"]
_MIB = 1 << 20
_JAVA_LANG_ERROR = "org.apache.bookkeeper.client.BKException$BKNotEnoughBookiesException"


@pytest.fixture(scope="module", autouse=True)
def _jvm() -> None:
    start_jvm(jars.installed(), 128 * _MIB, 128 * _MIB)


class Asked:
    """A policy with bookies that are there, and what it is asked."""

    def __init__(self, placement: BookiePlacement, groups: Groups, known: Sequence[str]) -> None:
        conf = jpype.JClass("org.apache.bookkeeper.conf.ClientConfiguration")()
        set_policy(conf, placement)
        self.racks = JavaRacks(with_regions=placement.region_aware)
        self.racks.tell(groups, ())
        client = "org.apache.bookkeeper.client"
        name = "RegionAware" if placement.region_aware else "Rackaware"
        made = jpype.JClass("java.lang.Class").forName(f"{client}.{name}EnsemblePlacementPolicy")
        constructor = made.getDeclaredConstructor()
        constructor.setAccessible(True)
        self._timer = jpype.JClass("io.netty.util.HashedWheelTimer")()
        policy = constructor.newInstance()
        policy.initialize(
            conf,
            jpype.JClass("java.util.Optional").of(self.racks.resolver),
            self._timer,
            jpype.JClass("org.apache.bookkeeper.feature.SettableFeatureProvider").DISABLE_ALL,
            jpype.JClass("org.apache.bookkeeper.stats.NullStatsLogger").INSTANCE,
            jpype.JClass("org.apache.bookkeeper.net.BookieSocketAddress").LEGACY_BOOKIEID_RESOLVER,
        )
        self.racks.policy = policy
        self._left_out = jpype.JClass("java.util.concurrent.ConcurrentHashMap").newKeySet()
        policy.onClusterChanged(ids(known), ids([]))
        self._policy = leaving_out(policy, self._left_out)

    def leave_out(self, bookies: Sequence[str]) -> None:
        self._left_out.clear()
        self._left_out.addAll(ids(bookies))

    def ensemble(self, size: int, quorum: int) -> list[str] | None:
        """Return what a ledger would be on, None for too few bookies."""
        try:
            made = self._policy.newEnsemble(size, quorum, quorum, None, ids([]))
        except jpype.JClass(_JAVA_LANG_ERROR):
            return None
        return [str(each) for each in made.getResult()]

    def replaced(self, ensemble: Sequence[str], gone: str, quorum: int) -> str | None:
        """Return what takes the place of a bookie, None for too few."""
        now = jpype.JClass("java.util.ArrayList")(ids(ensemble))
        try:
            made = self._policy.replaceBookie(
                len(ensemble), quorum, quorum, None, now, one(gone), ids(ensemble)
            )
        except jpype.JClass(_JAVA_LANG_ERROR):
            return None
        return str(made.getResult())

    def close(self) -> None:
        self._timer.stop()


def one(bookie: str) -> Any:
    return jpype.JClass("org.apache.bookkeeper.net.BookieId").parse(bookie)


def ids(bookies: Sequence[str]) -> Any:
    found = jpype.JClass("java.util.LinkedHashSet")()
    for each in bookies:
        found.add(one(each))
    return found


def group_of(racks: dict[str, str]) -> Groups:
    return {"default": {bookie: BookieInfo(rack) for bookie, rack in racks.items()}}


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_ensembles_and_their_changes_keep_to_racks_and_leave_bookies_out(data: st.DataObject) -> None:
    known = data.draw(st.lists(st.sampled_from(BOOKIES), min_size=1, max_size=len(BOOKIES), unique=True))
    racks = {bookie: data.draw(st.sampled_from(RACKS)) for bookie in known}
    left_out = data.draw(st.lists(st.sampled_from(BOOKIES), unique=True))
    size = data.draw(st.integers(1, 4))
    quorum = data.draw(st.integers(1, size))
    asked = Asked(BookiePlacement(min_racks=2), group_of(racks), known)
    try:
        asked.leave_out(left_out)
        allowed = set(known) - set(left_out)
        found = asked.ensemble(size, quorum)
        assert (found is not None) == (len(allowed) >= size)
        if found is None:
            return
        assert set(found) <= allowed
        assert len(set(found)) == size
        _spread(found, quorum, racks, allowed)
        gone = data.draw(st.sampled_from(found))
        new = asked.replaced(found, gone, quorum)
        assert (new is not None) == bool(allowed - set(found))
        if new is not None:
            assert new in allowed - set(found)
    finally:
        asked.close()


def _spread(ensemble: Sequence[str], quorum: int, racks: dict[str, str], allowed: set[str]) -> None:
    """See that an entry lies on two racks where bookies that may be chosen are on two, and bookies enough on each."""
    full = sum(sum(racks[each] == rack for each in allowed) >= len(ensemble) for rack in RACKS)
    # Neighbours in a ring of odd length cannot all be on two racks by turns.
    if quorum >= 2 and (full >= 3 or (full == 2 and len(ensemble) % 2 == 0)):
        for at in range(len(ensemble)):
            written = {ensemble[(at + each) % len(ensemble)] for each in range(quorum)}
            assert len({racks[each] for each in written}) >= 2


def test_without_racks_enough_there_is_no_ledger_where_they_are_enforced() -> None:
    racks = dict.fromkeys(BOOKIES, "/a")
    for enforced in (False, True):
        asked = Asked(BookiePlacement(min_racks=2, enforce_min_racks=enforced), group_of(racks), BOOKIES)
        assert (asked.ensemble(3, 2) is None) == enforced
        asked.close()


def test_a_bookie_that_moves_to_another_rack_counts_there() -> None:
    racks = dict.fromkeys(BOOKIES, "/a")
    asked = Asked(BookiePlacement(min_racks=2, enforce_min_racks=True), group_of(racks), BOOKIES)
    assert asked.ensemble(2, 2) is None
    moved = {**racks, BOOKIES[0]: "/b"}
    asked.racks.tell(group_of(moved), BOOKIES)
    for _ in range(5):
        found = asked.ensemble(2, 2)
        assert found is not None
        assert BOOKIES[0] in found
    asked.racks.tell(group_of({}), BOOKIES)  # all are on the default rack, which counts as none
    assert asked.ensemble(2, 2) is None
    asked.close()


def test_entries_lie_in_two_regions_where_there_are_two() -> None:
    racks = {bookie: f"/{'east' if at % 2 else 'west'}/rack-{at % 4}" for at, bookie in enumerate(BOOKIES)}
    asked = Asked(BookiePlacement(region_aware=True, min_racks=1), group_of(racks), BOOKIES)
    for _ in range(20):
        found = asked.ensemble(2, 2)
        assert found is not None
        assert {racks[each].split("/")[1] for each in found} == {"east", "west"}
    asked.close()
