"""Offsets of transactions that are open: of several under one name the one that was written last counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.coordination.decision import Transaction
from magnetar.kafka.coordinators.facts import Committed, OffsetFact, read_fact
from magnetar.kafka.coordinators.pending import Name, PendingOffsets

NAMES = (Name("g", "t", 0), Name("g", "t", 1), Name("h", "t", 0))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 3), st.sampled_from(NAMES)),
        st.tuples(st.just("end"), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("plain"), st.just(0), st.sampled_from(NAMES)),
        st.tuples(st.just("again"), st.just(0), st.just(None)),
    ),
    max_size=25,
)


def kept(offset: int) -> Committed:
    return Committed(offset, -1, "", 0, -1)


def transaction(producer_id: int) -> Transaction:
    return Transaction(producer_id, 0)


def restated(pending: PendingOffsets) -> PendingOffsets:
    """Return what is read from all that it states."""
    made = PendingOffsets()
    for fact in pending.facts():
        said = read_fact(fact.key, fact.value)
        assert isinstance(said, OffsetFact)
        assert said.committed is not None
        assert fact.transaction is not None
        made.add(fact.transaction, Name(said.group_id, said.topic, said.partition), said.committed)
    return made


@given(STEPS)
def test_what_counts_is_what_compaction_would_keep(steps: list[tuple[str, int, object]]) -> None:
    pending, counts = PendingOffsets(), dict[Name, int]()
    written: list[tuple[int, Name]] = []  # all there ever was, by number
    of: dict[int, list[int]] = {}
    decided: set[int] = set()
    for what, producer_id, about in steps:
        if what == "write":
            assert isinstance(about, Name)
            of.setdefault(producer_id, []).append(len(written))
            pending.add(transaction(producer_id), about, kept(len(written)))
            written.append((producer_id, about))
        elif what == "plain":
            assert isinstance(about, Name)
            pending.overrule(about)
            decided.add(len(written))
            counts[about] = len(written)
            written.append((0, about))
        elif what == "again":
            pending = restated(pending)
        else:
            ended = pending.end(transaction(producer_id), committed=bool(about))
            mine = of.pop(producer_id, [])
            if about:
                decided.update(mine)
                counts |= {name: each.offset for name, each in ended.items()}
        wanted = {name: number for number, (_, name) in enumerate(written) if number in decided}
        assert counts == wanted
