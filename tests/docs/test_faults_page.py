"""The page of faults has the figures of the JSON beside what makes it."""

from __future__ import annotations

import json
import re

from benchmarks.faults import page
from benchmarks.faults.alerts import ALERTS, RULES
from benchmarks.faults.faults import FAULTS


def test_the_page_of_faults_has_the_figures_of_its_json() -> None:
    assert page.text(json.loads(page.RESULTS.read_text())) == page.PAGE.read_text()


def test_what_is_found_and_what_misses_a_bar_is_in_bold() -> None:
    kept = json.loads(page.RESULTS.read_text())
    kill = "kill -9 of a broker, which is away for two and a half sessions"
    seconds = {"numbers-0": 3.1, "transactions": 9.0, "sequence-0": 1.0}
    fault = {"fault": kill, "produced_again_s": seconds, "consumed_again_s": seconds}
    told = page.text(kept | {"faults": [fault, fault], "violations": ["1.0 s: numbers-0: a gap"]})
    assert f"| {kill} | 2 | 9.00 / 9.00 | 1.00 / 1.00 |" in told
    assert "| 3 | 3.10 / 3.10, **2 of 2 above** | 1.00 / 1.00 |" in told
    assert "**1** lost" in told
    assert "\n- 1.0 s: numbers-0: a gap\n" in told


def test_each_fault_has_an_alert_that_exists() -> None:
    rules = set(re.findall(r"- alert: (\w+)", RULES.read_text()))
    named = [each.name for each in FAULTS if "nothing" not in each.name]
    assert list(ALERTS) == named
    assert {alert for alerts in ALERTS.values() for alert in alerts} <= rules
    assert all(ALERTS.values())
    told = page.PAGE.read_text().partition("## Alerts")[2].partition("\n## ")[0]
    assert [fault for fault in named if f"| `{fault}` | `" not in told] == []
