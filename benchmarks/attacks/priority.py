"""On a machine that does other things, too: have the system serve us first, and the innocent client first of us."""

from __future__ import annotations

import os

ATTACKER, BROKER, INNOCENT = 1, 2, 3


def before_all_else() -> None:
    """Have this process, and those that it begins, served before all that is not (SCHED_RR); wants root."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(ATTACKER))


def as_the(who: int) -> None:
    """If processes are served so, take this one's place among them."""
    if os.sched_getscheduler(0) == os.SCHED_RR:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(who))
