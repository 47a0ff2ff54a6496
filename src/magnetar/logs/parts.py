"""The façade of this room: its objects in one broker."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.logs.backlogs import Backlogs
from magnetar.logs.compaction import Compactions
from magnetar.logs.offloading import Offloading
from magnetar.logs.open_logs import OpenLogs


@dataclass(frozen=True, slots=True)
class LogParts:
    """The open logs, and the work on them."""

    open_logs: OpenLogs
    backlogs: Backlogs
    compactions: Compactions
    offloading: Offloading
