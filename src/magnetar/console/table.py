"""The table of contents: all pages."""

from __future__ import annotations

from magnetar.console import groups, overview, records, topic, topics
from magnetar.console.page import ConsolePage

PAGES: tuple[ConsolePage, ...] = (
    overview.PAGE,
    topics.PAGE,
    groups.GROUPS,
    topic.TOPIC,
    topic.LEDGERS,
    topic.CONFIGURATION,
    records.RECORDS,
    records.RECORD,
    groups.WHY,
    groups.GROUP,
    groups.SUBSCRIPTION,
)
