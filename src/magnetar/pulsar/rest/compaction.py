"""Compaction in the admin REST: begun, looked at, and a topic's own threshold."""

from __future__ import annotations

from magnetar.pulsar.rest.request import AdminRequest, RequiredLevel, RestError, RestRoute, scalar
from magnetar.pulsar.rest.topics import every, found, without

THRESHOLD = "compaction.threshold"


async def begin(ask: AdminRequest) -> None:
    """Begin to compact a topic, all of its partitions."""
    topics = await every(ask)
    compactions = ask.services.broker.compactions
    if any(compactions.is_running(topic.log) for topic in topics):
        raise RestError(409, "Compaction already in progress")
    for topic in topics:
        compactions.begin(topic.topic, topic.log)


async def status(ask: AdminRequest) -> dict[str, str]:
    """Tell how the last compaction went since the broker opened the topic."""
    reports = [topic.log.compaction for topic in await every(ask)]
    worst = max(reports, key=lambda report: ("NOT_RUN", "SUCCESS", "ERROR", "RUNNING").index(report.status))
    return {"status": worst.status.value, "lastError": worst.error}


async def threshold(ask: AdminRequest) -> int | None:
    """Return a topic's own compaction threshold in bytes or, with ``applied``, the one in force."""
    topic = found(ask)
    if ask.flag("applied"):
        return topic.config.compaction_threshold
    text = topic.overrides.get(THRESHOLD)
    return None if text is None else int(text)


async def set_threshold(ask: AdminRequest) -> None:
    """Set a topic's own compaction threshold in bytes; 0 for only when asked."""
    topic, wanted = found(ask), scalar(ask.json(), int)
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 0:
        raise RestError(412, "Invalid value for compactionThreshold: a whole number from 0 on")
    await ask.services.broker.change_topic_config(
        topic.kafka_name, lambda topic: {**topic.overrides, THRESHOLD: str(wanted)}
    )


async def remove_threshold(ask: AdminRequest) -> None:
    """Have a topic follow its namespace's compaction threshold again."""
    await without(ask, found(ask), lambda name: name == THRESHOLD)


_ROOT = "/persistent/{tenant}/{namespace}/{topic}"
ROUTES = (
    RestRoute("PUT", f"{_ROOT}/compaction", begin, RequiredLevel.tenant),
    RestRoute("GET", f"{_ROOT}/compaction", status, RequiredLevel.tenant),
    RestRoute("GET", f"{_ROOT}/compactionThreshold", threshold, RequiredLevel.tenant),
    RestRoute("POST", f"{_ROOT}/compactionThreshold", set_threshold, RequiredLevel.tenant),
    RestRoute("DELETE", f"{_ROOT}/compactionThreshold", remove_threshold, RequiredLevel.tenant),
)
