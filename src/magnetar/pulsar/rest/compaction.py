"""Compaction in the admin REST: begun, looked at, and a topic's own threshold."""

from __future__ import annotations

from typing import Any

from magnetar.pulsar.names import PulsarName
from magnetar.pulsar.rest.everywhere import everywhere, opened, part
from magnetar.pulsar.rest.request import AdminRequest, RequiredLevel, RestError, RestRoute, scalar
from magnetar.pulsar.rest.topics import found, without

THRESHOLD = "compaction.threshold"


async def begin(ask: AdminRequest) -> None:
    """Begin to compact a topic, all of its partitions."""
    topic = found(ask)
    reports = await everywhere(ask, report_on, topic)
    if any(each["running"] for each in reports.values()):
        raise RestError(409, "Compaction already in progress")
    await everywhere(ask, begin_on, topic)


@part
async def begin_on(ask: AdminRequest, name: PulsarName) -> None:
    topic = await opened(ask, name)
    ask.services.broker.logs.compactions.begin(topic.topic, topic.log)


@part
async def report_on(ask: AdminRequest, name: PulsarName) -> dict[str, Any]:
    log = (await opened(ask, name)).log
    running = ask.services.broker.logs.compactions.is_running(log)
    return {
        "running": running,
        "status": log.compaction.status.value,
        "lastError": log.compaction.error,
    }


async def status(ask: AdminRequest) -> dict[str, str]:
    """Tell how the last compaction went since the broker opened the topic."""
    reports = (await everywhere(ask, report_on, found(ask))).values()
    worst = max(reports, key=lambda each: ("NOT_RUN", "SUCCESS", "ERROR", "RUNNING").index(each["status"]))
    return {"status": worst["status"], "lastError": worst["lastError"]}


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
