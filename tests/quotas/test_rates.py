"""Rates and token buckets say what Kafka's own say, step by step (`KafkaRates.java`), and how long to wait."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.kafka.quotas.rates import MAX_THROTTLE_MS, TokenBucket, WindowedRate, Windows

TOLD = Path(__file__).parent / "kafka_rates.txt"
TEN_SECONDS = Windows(11, 1000)


def told() -> Iterator[tuple[Windows, float, int, float, list[float]]]:
    for line in TOLD.read_text().splitlines():
        if not line.startswith("#"):
            asked, _, answered = line.partition("|")
            number, seconds, bound, now_ms, value = map(float, asked.split())
            yield (
                Windows(int(number), int(seconds) * 1000),
                bound,
                int(now_ms),
                value,
                list(map(float, answered.split())),
            )


def test_as_kafkas_own() -> None:
    meters: dict[Windows, tuple[WindowedRate, TokenBucket]] = {}
    steps = 0
    for windows, bound, now_ms, value, (rate, window_ms, tokens) in told():
        if windows not in meters:
            meters[windows] = WindowedRate(windows), TokenBucket(windows)
        ours, bucket = meters[windows]
        ours.record(value, now_ms)
        bucket.take(value, bound, now_ms)
        # A window of no length counts as one of 1 ms in Kafka 4.4.0's quotas.
        assert ours.rate(now_ms) == pytest.approx(rate if window_ms else value * 1000)
        assert bucket.tokens(bound, now_ms) == pytest.approx(tokens)
        waits = (rate - bound) / bound * window_ms
        assert ours.wait_ms(bound, now_ms) == (math.floor(waits + 0.5) if rate > bound else 0)
        steps += 1
    assert steps == 600


def test_a_rate_over_the_bound_by_a_tenth_waits_for_a_tenth_of_the_time() -> None:
    rate = WindowedRate(TEN_SECONDS)
    rate.record(11_000, 5_000)  # in the first window: as if nothing had come for ten seconds before
    assert rate.rate(5_000) == 1100
    assert rate.wait_ms(1000, 5_000) == 1000
    assert rate.wait_ms(1100, 5_000) == 0  # the bound itself may be reached
    assert rate.wait_ms(1000, 5_000, longest_ms=300) == 300
    assert rate.wait_ms(1000, 5_999) == 1


def test_waits_fit_an_answer() -> None:
    rate, bucket = WindowedRate(TEN_SECONDS), TokenBucket(TEN_SECONDS)
    rate.record(1e30, 0)
    bucket.take(1e30, 0.001, 0)
    assert rate.wait_ms(1e-300, 0) == MAX_THROTTLE_MS
    assert bucket.wait_ms(0.001, 0) == MAX_THROTTLE_MS


def test_what_is_taken_back_never_was() -> None:
    rate = WindowedRate(TEN_SECONDS)
    rate.record(100, 0)
    rate.record(5000, 700)
    rate.record(-5000, 700)
    assert rate.total(700) == 100
    assert not rate.is_old(10_999)
    assert rate.is_old(700 + 11_000)
    assert rate.total(700 + 11_000) == 0


def test_a_bucket_is_full_at_first_and_pays_its_debt() -> None:
    bucket = TokenBucket(Windows(11, 1000))
    assert bucket.tokens(2, 0) == 22
    bucket.take(30, 2, 0)
    assert bucket.wait_ms(2, 0) == 4000
    assert bucket.wait_ms(2, 4000) == 0
    assert not bucket.is_old(2, 14_999)
    assert bucket.is_old(2, 15_000)


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 10_000)), min_size=1, max_size=200),
    st.integers(1, 5000),
)
def test_who_waits_as_long_as_he_is_told_keeps_to_his_quota(steps: list[tuple[int, int]], bound: int) -> None:
    """Over the whole time he gets no more than twice his bound: at worst one burst each eleven seconds, as in Kafka."""
    rate = WindowedRate(TEN_SECONDS)
    now_ms, total, value = 0, 0, 0
    for pause_ms, value in steps:
        now_ms += pause_ms
        rate.record(value, now_ms)
        total += value
        now_ms += rate.wait_ms(bound, now_ms) + 1
    assert total - value <= 2 * bound * (now_ms / 1000 + 11)
