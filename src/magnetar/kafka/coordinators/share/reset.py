"""The values of ``share.auto.offset.reset``: where a share group begins in a partition that it has not read yet."""

from __future__ import annotations

import re

_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.ASCII | re.IGNORECASE
)
BY_DURATION = "by_duration:"


def duration_ms(text: str) -> int | None:
    """Return an ISO 8601 duration of days, hours, minutes and seconds in ms; None if the text is none."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()) or text[-1] in "tT":
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)


def is_reset(text: object) -> bool:
    """Return whether a text is such a value."""
    if text in ("latest", "earliest"):
        return True
    return (
        isinstance(text, str)
        and text.startswith(BY_DURATION)
        and duration_ms(text[len(BY_DURATION) :]) is not None
    )
