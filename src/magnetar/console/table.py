"""The table of contents: all pages."""

from __future__ import annotations

from magnetar.console import overview, topics
from magnetar.console.page import ConsolePage

PAGES: tuple[ConsolePage, ...] = (
    overview.PAGE,
    topics.PAGE,
)
