"""The table of contents: all pages."""

from __future__ import annotations

from magnetar.console import cluster, groups, overview, records, schemas, tail, topic, topics
from magnetar.console.page import ConsolePage

PAGES: tuple[ConsolePage, ...] = (
    overview.PAGE,
    topics.PAGE,
    groups.GROUPS,
    schemas.SCHEMAS,
    cluster.TRANSACTIONS,
    cluster.CLIENTS,
    cluster.PERMISSIONS,
    cluster.CLUSTER,
    topic.TOPIC,
    topic.LEDGERS,
    topic.CONFIGURATION,
    records.RECORDS,
    records.RECORD,
    tail.PAGE,
    groups.WHY,
    schemas.SUBJECT,
    groups.GROUP,
    groups.SUBSCRIPTION,
)
