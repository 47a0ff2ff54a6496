"""What each client may, and how long it has to wait now: Kafka's quotas, put together for one broker.

Nothing is counted while nobody has a quota. Each broker counts for itself, as in Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from magnetar.kafka.errors import ThrottlingQuotaExceeded
from magnetar.kafka.quotas.meters import Find, Metered, Meters, Who, limit_of, limit_of_address
from magnetar.kafka.quotas.rates import TokenBucket, WindowedRate, Windows
from magnetar.kafka.settings import KafkaSettings
from magnetar.serving.memory import Account
from magnetar.topics.client_quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    ClientQuotas,
    plain_address,
)


class FetchVerdict(NamedTuple):
    """What becomes of a fetch: how long its client waits, and whether it gets nothing this time."""

    wait_ms: int
    is_withheld: bool


class QuotaManagers:
    """The quotas of one broker's clients."""

    def __init__(
        self,
        quotas: ClientQuotas,
        settings: KafkaSettings,
        account: Account,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``clock`` is in seconds; ``account`` is charged for what is counted."""
        self.clock = clock
        self._windows = windows = Windows(
            settings.quota_window_num, settings.quota_window_size_seconds * 1000
        )
        self._of_mutations = Windows(
            settings.controller_quota_window_num, settings.controller_quota_window_size_seconds * 1000
        )
        limits = quotas.limits

        def rates(key: str, find: Find = limit_of) -> Meters[WindowedRate]:
            return Meters(
                limits[key],
                find,
                lambda: WindowedRate(windows),
                lambda rate, _: rate.is_old(self.now_ms()),
                account,
            )

        self.produce = rates(PRODUCER_BYTE_RATE)
        self.fetch = rates(CONSUMER_BYTE_RATE)
        self.request = rates(REQUEST_PERCENTAGE)
        self.connections = rates(CONNECTION_CREATION_RATE, limit_of_address)
        self.controller_mutation: Meters[TokenBucket] = Meters(
            limits[CONTROLLER_MUTATION_RATE],
            limit_of,
            lambda: TokenBucket(self._of_mutations),
            lambda bucket, bound: bucket.is_old(bound, self.now_ms()),
            account,
        )
        self.enabled = False
        """Whether any client has a quota, addresses left aside."""
        quotas.changed.append(self._changed)
        self._changed()

    def _changed(self) -> None:
        for meters in (self.produce, self.fetch, self.request, self.controller_mutation, self.connections):
            meters.forget_limits()
        self.enabled = (
            self.produce.enabled
            or self.fetch.enabled
            or self.request.enabled
            or self.controller_mutation.enabled
        )

    def now_ms(self) -> int:
        """Return the time of the meters."""
        return int(self.clock() * 1000)

    # Each returns for how many ms a client has to wait, 0 if not at all.

    def produced(self, who: Who, nbytes: int) -> int:
        """Count a Produce of so many bytes."""
        return self._record(self.produce.of(*who), nbytes)

    def took(self, who: Who, seconds: float) -> int:
        """Count so much of the event loop's time, of which a client may have a part in percent."""
        return self._record(self.request.of(*who), seconds * 100, longest_ms=self._windows.size_ms)

    def _record(self, metered: Metered[WindowedRate] | None, value: float, **longest_ms: int) -> int:
        if metered is None:
            return 0
        now_ms = self.now_ms()
        metered.meter.record(value, now_ms)
        return metered.throttle(metered.meter.wait_ms(metered.bound, now_ms, **longest_ms))

    def fetched(self, who: Who, nbytes: int) -> FetchVerdict:
        """Count an answer to a Fetch; whose consumer has to wait gets it later, and it is not counted now.

        One that alone is more than may come in all windows is given nonetheless, if nothing came before: it is never
        going to be less.
        """
        metered = self.fetch.of(*who)
        if metered is None:
            return FetchVerdict(0, is_withheld=False)
        now_ms = self.now_ms()
        rate = metered.meter
        is_first = not rate.total(now_ms)
        rate.record(nbytes, now_ms)
        wait_ms = metered.throttle(rate.wait_ms(metered.bound, now_ms))
        is_withheld = wait_ms > 0 and not is_first
        if is_withheld:
            rate.record(-nbytes, now_ms)
        return FetchVerdict(wait_ms, is_withheld)

    def max_fetch_bytes(self, who: Who) -> int | None:
        """Return what a consumer can be given at once without having to wait; None if it is not limited."""
        metered = self.fetch.of(*who)
        if metered is None:
            return None
        full = Windows(self._windows.number - 1, self._windows.size_ms)
        return int(metered.bound * full.span_ms / 1000)

    def mutations(self, who: Who, *, strict: bool) -> MutationQuota | None:
        """Return what a request may make and delete; None if as much as it likes.

        If ``strict`` nothing more once the quota is used up; otherwise its client waits afterwards.
        """
        metered = self.controller_mutation.of(*who)
        return None if metered is None else MutationQuota(metered, self.now_ms, strict=strict)

    def connected(self, address: str) -> int:
        """Count a connection from somewhere that has a quota of them; one that has to wait is not counted."""
        if not self.connections.enabled:
            return 0
        try:
            address = plain_address(address)
        except ValueError:
            return 0  # a socket of this machine's own
        metered = self.connections.of("", address)
        if metered is None:
            return 0
        now_ms = self.now_ms()
        rate = metered.meter
        rate.record(1, now_ms)
        wait_ms = metered.throttle(rate.wait_ms(metered.bound, now_ms, self._windows.size_ms))
        if wait_ms:
            rate.record(-1, now_ms)
        return wait_ms


class MutationQuota:
    """How many topics and partitions one request may make or delete."""

    def __init__(self, metered: Metered[TokenBucket], now_ms: Callable[[], int], *, strict: bool) -> None:
        self._metered = metered
        self._now_ms = now_ms
        self._strict = strict
        self._waits_until_ms = 0

    def wait_ms(self) -> int:
        """Return how long the client has to wait after this request, and note that it does."""
        return self._metered.throttle(max(self._waits_until_ms - self._now_ms(), 0))

    def take(self, partitions: int) -> None:
        """Take the permits for so many; raise `ThrottlingQuotaExceeded` if there may be none."""
        bucket, bound, now_ms = self._metered.meter, self._metered.bound, self._now_ms()
        if self._strict:
            wait_ms = bucket.wait_ms(bound, now_ms)
            if not wait_ms:
                bucket.take(partitions, bound, now_ms)
        else:
            bucket.take(partitions, bound, now_ms)
            wait_ms = bucket.wait_ms(bound, now_ms)
        if wait_ms:
            self._waits_until_ms = now_ms + wait_ms
            if self._strict:
                raise ThrottlingQuotaExceeded("The throttling quota has been exceeded.")
