"""Deadlines against a model that is a dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from magnetar.coordination.timers import TimerKey, Timers

KEYS = [TimerKey("session", "g", str(number)) for number in range(4)]
STEPS = st.one_of(
    st.tuples(st.just("schedule"), st.sampled_from(KEYS), st.integers(0, 20)),
    st.tuples(st.just("cancel"), st.sampled_from(KEYS), st.just(0)),
    st.tuples(st.just("due"), st.just(KEYS[0]), st.integers(0, 25)),
)


@given(st.lists(STEPS, max_size=40))
def test_each_key_is_due_once_at_its_last_deadline(steps: list[tuple[str, TimerKey, int]]) -> None:
    timers, model = Timers(), dict[TimerKey, int]()
    for what, key, time in steps:
        if what == "schedule":
            timers.schedule(key, time)
            model[key] = time
        elif what == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            taken = list(timers.take_due(time))
            assert sorted(taken) == sorted(each for each, due in model.items() if due <= time)
            times = [model.pop(each) for each in taken]
            assert times == sorted(times), "the earliest first"
        for each in KEYS:
            assert timers.deadline(each) == model.get(each)
            assert (each in timers) is (each in model)
        wake = timers.wake_ms()
        assert (wake is None) is (not model)
        assert wake is None or wake <= min(model.values())


def test_what_is_set_while_keys_are_taken_is_taken_too() -> None:
    timers = Timers()
    timers.schedule(KEYS[0], 5)
    taken = []
    for key in timers.take_due(10):
        taken.append(key)
        if len(taken) < 3:
            timers.schedule(KEYS[len(taken)], 10)
    assert taken == KEYS[:3]
