"""Compaction in the admin REST: begun, looked at, and a topic's own threshold."""

from __future__ import annotations

from magnetar.pulsar.rest.ask import Ask, Needs, RestError, Route, scalar
from magnetar.pulsar.rest.topics import every, found, without

THRESHOLD = "compaction.threshold"


async def begin(ask: Ask) -> None:
    """Begin to compact a topic, all of its partitions."""
    topics = await every(ask)
    compactions = ask.services.broker.compactions
    if any(compactions.is_running(topic.log) for topic in topics):
        raise RestError(409, "Compaction already in progress")
    for topic in topics:
        compactions.begin(topic.topic, topic.log)


async def status(ask: Ask) -> dict[str, str]:
    """Tell how the last compaction went since the broker opened the topic."""
    reports = [topic.log.compaction for topic in await every(ask)]
    worst = max(reports, key=lambda report: ("NOT_RUN", "SUCCESS", "ERROR", "RUNNING").index(report.status))
    return {"status": worst.status.value, "lastError": worst.error}


async def threshold(ask: Ask) -> int | None:
    """Give a topic's own compaction threshold in bytes or, with ``applied``, the one in force."""
    topic = found(ask)
    if ask.flag("applied"):
        return topic.config.compaction_threshold
    text = topic.overrides.get(THRESHOLD)
    return None if text is None else int(text)


async def set_threshold(ask: Ask) -> None:
    """Set a topic's own compaction threshold in bytes; 0 for only when asked."""
    topic, wanted = found(ask), scalar(ask.json(), int)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 0:
        raise RestError(412, "Invalid value for compactionThreshold: a whole number from 0 on")
    await ask.services.broker.change_topic_config(
        topic.kafka_name, lambda topic: {**topic.overrides, THRESHOLD: str(wanted)}
    )


async def remove_threshold(ask: Ask) -> None:
    """Have a topic follow its namespace's compaction threshold again."""
    await without(ask, found(ask), lambda name: name == THRESHOLD)


_ROOT = "/persistent/{tenant}/{namespace}/{topic}"
ROUTES = (
    Route("PUT", f"{_ROOT}/compaction", begin, Needs.tenant),
    Route("GET", f"{_ROOT}/compaction", status, Needs.tenant),
    Route("GET", f"{_ROOT}/compactionThreshold", threshold, Needs.tenant),
    Route("POST", f"{_ROOT}/compactionThreshold", set_threshold, Needs.tenant),
    Route("DELETE", f"{_ROOT}/compactionThreshold", remove_threshold, Needs.tenant),
)
