"""Classes of requests and of their rows, by API and name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from magnetar.wire.kafka.messages import ApiKey, request_class


def of(key: ApiKey) -> Callable[..., Any]:
    return request_class(key)


def part(key: ApiKey, name: str) -> Any:
    """Return the class of a row of a request."""
    return getattr(sys.modules[request_class(key).__module__], name)
