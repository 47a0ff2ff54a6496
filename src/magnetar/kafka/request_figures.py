"""What is counted of requests, by API: how many, how long until the answer, which errors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from magnetar.ledger.durations import Durations
from magnetar.wire.kafka.message import Record
from magnetar.wire.kafka.messages import API_KEYS, ApiKey

_MAX_ROWS = 100
_MAX_VERSIONS = 32
_OWN_COUNT = (ApiKey.PRODUCE, ApiKey.FETCH)


class RequestFigures(Durations):
    """Those of one API. A request's time is from when its connection was last served to when its answer is ready."""

    __slots__ = ("_counts_errors", "errors", "name", "slow_s", "versions")

    def __init__(self, api_key: int, slow_s: float = float("inf")) -> None:
        """``slow_s``: from which time, in seconds, a request is slow."""
        super().__init__()
        self.slow_s = slow_s
        self.name = API_KEYS[api_key][0] if api_key in API_KEYS else "BetweenBrokers"
        """Kafka's name of the API."""
        self.versions = [0] * _MAX_VERSIONS
        """How many of each version."""
        self.errors: Counter[int] = Counter()
        """How many answers, or rows of answers, with each code; of rows the first `_MAX_ROWS` of an answer."""
        self._counts_errors = api_key not in _OWN_COUNT

    def count_errors(self, response: Any) -> None:
        """Count what an answer says went wrong; Produce and Fetch do that themselves, row by row."""
        if self._counts_errors and response is not None:
            self.errors.update(islice(_codes(response), _MAX_ROWS))


def _codes(message: Any) -> Iterator[int]:
    """Yield the code of an answer and of each of its rows, but for those that say that all is well."""
    seen = 0
    rows = [message]
    while rows and seen < _MAX_ROWS:
        row = rows.pop()
        seen += 1
        code = getattr(row, "error_code", 0)
        if code:
            yield code
        for name in row.__slots__:
            field = getattr(row, name)
            if type(field) is list and field and isinstance(field[0], Record):
                rows += field[:_MAX_ROWS]


class Requests(dict[int, RequestFigures]):
    """By the key of the API."""

    def __init__(self, slow_s: Mapping[int, float] | None = None) -> None:
        """``slow_s`` is by the key of the API, too; none is slow without."""
        super().__init__()
        self._slow_s = slow_s or {}

    def __missing__(self, api_key: int) -> RequestFigures:
        key = int(api_key)
        made = self[key] = RequestFigures(key, self._slow_s.get(key, float("inf")))
        return made
