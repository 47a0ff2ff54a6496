"""What was deleted a moment ago is remembered for a moment, and no longer; neither is much of it."""

from __future__ import annotations

from magnetar.topics import just_deleted
from magnetar.topics.just_deleted import REMEMBERED_S, WITHHELD_S, JustDeleted
from magnetar.topics.names import TopicName


def topic(local: str) -> TopicName:
    return TopicName("public", "default", local)


def test_only_the_successor_of_what_was_just_deleted_is_withheld() -> None:
    now_s = 0.0
    names = JustDeleted(lambda: now_s)
    names.made_again(topic("new"))
    assert not names.withholds(topic("new"))
    names.note(topic("t"))
    assert not names.withholds(topic("t")), "nobody has made it again"
    now_s = REMEMBERED_S - 1
    names.made_again(topic("t"))
    assert names.withholds(topic("t"))
    assert not names.withholds(topic("u"))
    now_s += WITHHELD_S
    assert not names.withholds(topic("t"))
    names.made_again(topic("t"))
    assert not names.withholds(topic("t")), "one answer was enough"


def test_a_successor_that_is_deleted_has_one_of_its_own() -> None:
    now_s = 0.0
    names = JustDeleted(lambda: now_s)
    for _ in range(3):
        names.note(topic("t"))
        assert not names.withholds(topic("t"))
        names.made_again(topic("t"))
        assert names.withholds(topic("t"))
        now_s += WITHHELD_S / 2


def test_it_keeps_few_and_only_for_a_moment() -> None:
    now_s = 0.0
    names = JustDeleted(lambda: now_s)
    for index in range(just_deleted.MOST + 5):
        names.note(topic(f"t{index}"))
        names.made_again(topic(f"t{index}"))
    assert not names.withholds(topic("t4"))
    assert names.withholds(topic("t5"))
    assert len(names._deleted_s) == len(names._made_s) == just_deleted.MOST
    now_s = REMEMBERED_S
    names.note(topic("last"))
    assert (list(names._deleted_s), list(names._made_s)) == ([topic("last")], [])
