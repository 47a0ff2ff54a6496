"""Who is metered together, and by which bound: Kafka's precedence of quotas; meters of users, client ids, or both."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from magnetar.serving.memory import Account
from magnetar.topics.client_quotas import DEFAULT, QuotaEntity

_MAX = 10_000
"""So many meters of a quota, and so many clients whose bound is remembered: a client may call itself what it likes."""
_MAX_NAME = 200
"""Of a longer client id its digest is kept."""
_LOOKED_AT = 4
METER_BYTES = 2000
"""What a meter takes, about."""
M = TypeVar("M")


class Who(NamedTuple):
    """Whom a request counts for."""

    user: str
    client_id: str


class Limit(NamedTuple):
    """What is in force for a client, and who shares it: a part of ``who`` is empty where it does not matter."""

    who: Who
    bound: float


def limit_of(limits: Mapping[QuotaEntity, float], user: str, client_id: str) -> Limit | None:
    """Return what of all limits is in force for a client, in Kafka's order; None if nothing is.

    A client without an id has only quotas of users.
    """
    both, as_user, as_client = Who(user, client_id), Who(user, ""), Who("", client_id)
    order = (
        (QuotaEntity(user, client_id), both),
        (QuotaEntity(user, DEFAULT), both),
        (QuotaEntity(user), as_user),
        (QuotaEntity(DEFAULT, client_id), both),
        (QuotaEntity(DEFAULT, DEFAULT), both),
        (QuotaEntity(DEFAULT), as_user),
        (QuotaEntity(client_id=client_id), as_client),
        (QuotaEntity(client_id=DEFAULT), as_client),
    )
    for entity, who in order:
        if (entity.client_id is None or client_id) and (bound := limits.get(entity)) is not None:
            return Limit(who, bound)
    return None


def limit_of_address(limits: Mapping[QuotaEntity, float], _: str, address: str) -> Limit | None:
    """Return what is in force for an address, which counts for itself."""
    for entity in (QuotaEntity(ip=address), QuotaEntity(ip=DEFAULT)):
        if (bound := limits.get(entity)) is not None:
            return Limit(Who("", address), bound)
    return None


Find = Callable[[Mapping[QuotaEntity, float], str, str], Limit | None]


class Metered(Generic[M]):
    """What is counted of those who share a quota, and how often and how long they were made to wait."""

    __slots__ = ("bound", "meter", "throttled", "throttled_ms", "who")

    def __init__(self, who: Who, bound: float, meter: M) -> None:
        self.who = who
        self.bound = bound
        self.meter = meter
        self.throttled = 0
        self.throttled_ms = 0

    def throttle(self, wait_ms: int) -> int:
        """Note that somebody waits for so long, if at all; give that back."""
        if wait_ms:
            self.throttled += 1
            self.throttled_ms += wait_ms
        return wait_ms


class Meters(Generic[M]):
    """All meters of one of Kafka's quotas.

    One whose rate has gone to nothing is as good as a new one, and is let go of when others come; where too many are in
    use at a time, those of client ids give way.
    """

    def __init__(
        self,
        limits: Mapping[QuotaEntity, float],
        find: Find,
        make: Callable[[], M],
        is_old: Callable[[M, float], bool],
        account: Account,
    ) -> None:
        """``is_old(meter, bound)`` says whether a meter is as good as a new one."""
        self._limits = limits
        self._find = find
        self._make = make
        self._is_old = is_old
        self._account = account
        self._found: dict[Who, Limit | None] = {}
        self.all: dict[Who, Metered[M]] = {}

    @property
    def enabled(self) -> bool:
        """Whether anybody has such a quota."""
        return bool(self._limits)

    def forget_limits(self) -> None:
        """Look up limits anew: some have changed. What was counted stays counted."""
        self._found.clear()

    def of(self, user: str, client_id: str) -> Metered[M] | None:
        """Return the meter of a client; None if nothing limits it."""
        if not self._limits:
            return None
        if len(client_id) > _MAX_NAME:
            limit = self._find(self._limits, user, client_id)
        else:
            asked = Who(user, client_id)
            if asked not in self._found:
                if len(self._found) >= _MAX:
                    self._found.clear()
                self._found[asked] = self._find(self._limits, user, client_id)
            limit = self._found[asked]
        if limit is None:
            return None
        who = limit.who
        if len(who.client_id) > _MAX_NAME:
            who = Who(who.user, hashlib.sha256(client_id.encode()).hexdigest())
        metered = self.all.get(who)
        if metered is None:
            self._make_room()
            self._account.charge(METER_BYTES)
            metered = self.all[who] = Metered(who, limit.bound, self._make())
        metered.bound = limit.bound
        return metered

    def _make_room(self) -> None:
        """Look at some that have been there for long, so that all are looked at before twice as many have come."""
        for who in [who for who, _ in zip(self.all, range(_LOOKED_AT), strict=False)]:
            metered = self.all.pop(who)
            if self._is_old(metered.meter, metered.bound) or (len(self.all) >= _MAX and who.client_id):
                self._account.charge(-METER_BYTES)
            else:
                self.all[who] = metered  # behind all others
