"""Assignors: everything has one owner who reads it, shares are even, and nobody loses without need."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from magnetar.kafka.coordinators.consumer.assignors import (
    ASSIGNORS,
    Sizes,
    Subscriber,
    Targets,
    assign_range,
    assign_uniform,
)

TOPICS = [bytes([number]) * 16 for number in range(5)]
SIZES = st.fixed_dictionaries({topic: st.integers(1, 9) for topic in TOPICS})


@st.composite
def subscribers(draw: st.DrawFn, *, alike: bool) -> list[Subscriber]:
    count = draw(st.integers(1, 8))
    reads = st.frozensets(st.sampled_from(TOPICS), min_size=1)
    same = draw(reads)
    return [
        Subscriber(
            f"m{number}", draw(st.sampled_from([None, f"i{number}"])), same if alike else draw(reads), {}
        )
        for number in range(count)
    ]


def owners(targets: Targets) -> Counter[tuple[bytes, int]]:
    return Counter(
        (topic, index)
        for target in targets.values()
        for topic, indexes in target.items()
        for index in indexes
    )


def check(members: list[Subscriber], sizes: Sizes, targets: Targets) -> None:
    assert targets.keys() == {each.member_id for each in members}
    read = {topic for each in members for topic in each.topics}
    assert owners(targets) == Counter({(topic, index): 1 for topic in read for index in range(sizes[topic])})
    for each in members:
        assert targets[each.member_id].keys() <= each.topics
        assert all(targets[each.member_id].values()), "a topic without partitions is not in an assignment"


def load(targets: Targets, member_id: str) -> int:
    return sum(map(len, targets[member_id].values()))


def with_targets(members: list[Subscriber], targets: Targets) -> list[Subscriber]:
    return [each._replace(target=targets.get(each.member_id, {})) for each in members]


@given(subscribers(alike=False), SIZES, st.sampled_from(sorted(ASSIGNORS)))
def test_every_partition_has_one_owner_who_reads_it(
    members: list[Subscriber], sizes: Sizes, name: str
) -> None:
    targets = ASSIGNORS[name](members, sizes)
    check(members, sizes, targets)
    again = ASSIGNORS[name](with_targets(members, targets), sizes)
    assert again == targets, "what is right already stays as it is"


@given(subscribers(alike=True), SIZES, st.data())
def test_uniform_is_even_and_moves_no_more_than_it_must(
    members: list[Subscriber], sizes: Sizes, data: st.DataObject
) -> None:
    before = assign_uniform(members, sizes)
    loads = [load(before, each.member_id) for each in members]
    assert max(loads) - min(loads) <= 1
    stay = data.draw(st.lists(st.sampled_from(members), min_size=1, unique_by=lambda each: each.member_id))
    new = [
        Subscriber(f"n{number}", None, members[0].topics, {})
        for number in range(data.draw(st.integers(0, 4)))
    ]
    crew = with_targets(stay, before) + new
    after = assign_uniform(crew, sizes)
    check(crew, sizes, after)
    total = sum(load(after, each.member_id) for each in crew)
    most = -(-total // len(crew))
    moved = sum(
        len(indexes - after[each.member_id].get(topic, frozenset()))
        for each in stay
        for topic, indexes in before[each.member_id].items()
    )
    assert moved <= sum(max(load(before, each.member_id) - total // len(crew), 0) for each in stay)
    assert all(load(after, each.member_id) <= most for each in crew)


@settings(max_examples=300)
@given(subscribers(alike=False), SIZES)
def test_uniform_leaves_no_pair_that_could_be_evener(members: list[Subscriber], sizes: Sizes) -> None:
    targets = assign_uniform(members, sizes)
    for rich in members:
        for poor in members:
            shared = poor.topics & targets[rich.member_id].keys()
            if shared:
                assert load(targets, rich.member_id) - load(targets, poor.member_id) <= 1


def test_range_joins_topics_of_one_size_by_number() -> None:
    reads = frozenset(TOPICS[:2])
    members = [Subscriber(name, None, reads, {}) for name in ("b", "a", "c")]
    targets = assign_range(members, {TOPICS[0]: 7, TOPICS[1]: 7})
    assert {name: sorted(target[TOPICS[0]]) for name, target in targets.items()} == {
        "a": [0, 1, 2],
        "b": [3, 4],
        "c": [5, 6],
    }
    assert all(target[TOPICS[0]] == target[TOPICS[1]] for target in targets.values())


def test_ten_thousand_members_take_no_quadratic_time() -> None:
    topic = TOPICS[0]
    members = [Subscriber(f"m{number}", None, frozenset([topic]), {}) for number in range(10_000)]
    targets = assign_uniform(members, {topic: 20_000})
    assert set(map(len, (target[topic] for target in targets.values()))) == {2}
