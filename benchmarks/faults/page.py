"""The page that tells what faults came to: docs/faults.md, made from results.json beside this file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.faults.alerts import ALERTS
from benchmarks.faults.faults import FAULTS
from benchmarks.faults.flows import NEWCOMERS
from benchmarks.faults.run import STANDSTILL_S
from benchmarks.faults.subscriptions import CERTAIN_S
from benchmarks.faults.work import IN_FLIGHT_S

RESULTS = Path(__file__).with_name("results.json")
LATER = Path(__file__).with_name("later.json")
"""A shorter run of more; it goes when there is a whole one."""
_TEMPLATE = Path(__file__).with_name("page.md")
PAGE = Path(__file__).parents[2] / "docs" / "faults.md"
KILLED_S, PLANNED_S = 3.0, 0.3
"""The bars of a kill -9 of a broker, and of a planned hand-over."""


def text(kept: dict[str, Any]) -> str:
    """Return the page for a kept outcome."""
    return _TEMPLATE.read_text().format(
        minutes=round(kept["seconds"] / 60),
        seed=kept["seed"],
        day=kept["day"],
        commit=kept["commit"],
        note=f" {kept['note']}" if "note" in kept else "",
        standstill=STANDSTILL_S,
        in_flight=IN_FLIGHT_S,
        subscriptions=_subscriptions(kept["records"]),
        session=kept["session_ms"] / 1000,
        load=kept["load"],
        came_out=_came_out(kept),
        table=_table(kept["faults"]),
        bars=_bars(kept["faults"]),
        alerts=_alerts(),
        told=_told(kept),
        later=_later(json.loads(LATER.read_text())) if LATER.exists() else "",
    )


def _alerts() -> str:
    rows = "".join(
        f"| `{fault}` | {', '.join(f'`{each}`' for each in alerts)} |\n" for fault, alerts in ALERTS.items()
    )
    return (
        "## Alerts\n\nThe rules of `examples/monitoring/alerts.yml` that fire if a fault lasts or is repeated. Rules "
        "with a duration do not fire for what is as short as here.\n\n"
        f"| fault | alerts |\n|---|---|\n{rows}\n"
    )


def _came_out(kept: dict[str, Any]) -> str:
    records, count = kept["records"], len(kept["violations"])
    money, messages = records["transactions"], records["of Pulsar's producers"]
    violations = "\n".join(f"- {each}" for each in kept["violations"][:20])
    return (
        f"## Results\n\nIn {kept['seconds'] / 60:.0f} minutes and {len(kept['faults'])} faults: "
        f"{records['idempotent']:,} records of the idempotent producer, "
        f"{sum(money.values()):,} transactions of {records['of each transaction']} records "
        f"({money['committed']:,} committed, {money['aborted']:,} aborted, "
        f"{money['either']:,} without an answer to their producer), "
        f"{records['copied exactly once']:,} records copied, {messages:,} messages of Pulsar "
        f"producers{_more(records)}. **{count or 'None'}** lost, doubled, out of order, aborted and yet read, or not "
        f"acknowledged in the end.\n\n{violations}{chr(10) * 2 if violations else ''}"
    )


def _later(kept: dict[str, Any]) -> str:
    command = f"python -m benchmarks.faults --seed {kept['seed']} --session-ms {kept['session_ms']}"
    outcome = _came_out(kept).partition("\n\n")[2]
    table = _table(kept["faults"]).partition("\n\n")[2]
    return (
        f"## A later run\n\nOf {kept['day']} at {kept['commit']}, by `{command}`, "
        f"with load averages of {kept['load']}. {kept['note']}\n\n{outcome}{table}"
    )


def _more(records: dict[str, Any]) -> str:
    """Return what lists and a share group came to, which older outcomes have not."""
    if "lists" not in records:
        return ""
    lists, shares = records["lists"], records["share group"]
    return (
        f", {lists['values']:,} values in lists from {lists.get('committed', 0):,} transactions "
        f"({lists.get('aborted', 0):,} more were aborted, and {lists.get('either', 0):,} ended without an "
        f"answer to the writer), {shares['acknowledged']:,} of {shares['sent']:,} records acknowledged by a share "
        f"group (the rest got no answer; {shares['came again in flight']:,} came again in flight)"
    )


def _subscriptions(records: dict[str, Any]) -> str:
    """Return what is looked at of redelivery, which was not in older runs."""
    if "came again to subscriptions" not in records:
        return ""
    return (
        f"; messages that were acknowledged {CERTAIN_S:g} s before a fault are not redelivered "
        f"({records['came again to subscriptions']:,} that were acknowledged later were)"
    )


def _kafka(name: str) -> bool:
    return name.startswith(("numbers", "transactions", "lists by Kafka"))


def _pulsar(name: str) -> bool:
    return name.startswith("sequence")


def _kafka_reads(name: str) -> bool:
    return name.startswith(("numbers", "transactions"))


def _named(wanted: str) -> Callable[[str], bool]:
    return lambda name: name == wanted


def _worst(fault: dict[str, Any], key: str, wanted: Callable[[str], bool]) -> float:
    """Return -1 where there was no such stream."""
    return max((seconds for name, seconds in fault[key].items() if wanted(name)), default=-1.0)


_COLUMNS: tuple[tuple[str, str, Callable[[str], bool]], ...] = (
    ("Kafka produces again", "produced_again_s", _kafka),
    ("Pulsar produces again", "produced_again_s", _pulsar),
    ("Pulsar transactions continue", "produced_again_s", _named("lists by Pulsar's appender")),
    ("a Kafka group reads again", "consumed_again_s", _kafka_reads),
    ("a new Kafka group starts to read", "consumed_again_s", _named(NEWCOMERS)),
    ("Pulsar reads again", "consumed_again_s", _pulsar),
    ("a share group acknowledges again", "consumed_again_s", _named("share group")),
)


def _both(seconds: Iterable[float]) -> str:
    each = list(seconds)
    if min(each) < 0:
        return "-"
    return f"{median(each):.2f} / {max(each):.2f}"


def _table(faults: list[dict[str, Any]]) -> str:
    rows = [
        "## Cost of each fault\n\nSeconds of the longest silence of the worst of all streams, from before the fault "
        "until after it: median / longest. A transaction comes each 0.4 s, other records each 0.1 s.\n\n"
        f"| fault | times | {' | '.join(title for title, _, _ in _COLUMNS)} |\n"
        f"|---|---:|{'---:|' * len(_COLUMNS)}\n"
    ]
    for kind in FAULTS:
        if done := [each for each in faults if each["fault"] == kind.name]:
            columns = (_both(_worst(each, key, wanted) for each in done) for _, key, wanted in _COLUMNS)
            rows.append(f"| {kind.name} | {len(done)} | {' | '.join(columns)} |\n")
    return "".join(rows) + "\n"


def _bars(faults: list[dict[str, Any]]) -> str:
    kills = [each for each in faults if each["fault"].startswith("kill -9 of a broker,")]
    planned = [
        each for each in faults if each["fault"].startswith(("a bundle is unloaded", "a bundle is moved"))
    ]
    rows = [
        "## The bars\n\nThe worst of the streams that send each 0.1 s.\n\n"
        "| | bar, s | Kafka, median / longest | Pulsar, median / longest |\n|---|---:|---:|---:|\n"
    ]
    for what, bar, some in (
        ("from a kill -9 of a broker to the first produce", KILLED_S, kills),
        ("planned hand-over of a bundle", PLANNED_S, planned),
    ):
        columns = []
        for prefix in ("numbers", "sequence"):
            found = [
                _worst(each, "produced_again_s", lambda name, p=prefix: name.startswith(p)) for each in some
            ]
            if found:
                missed = sum(each >= bar for each in found)
                columns.append(_both(found) + (f", **{missed} of {len(found)} above**" if missed else ""))
        rows.append(f"| {what} | {bar:g} | {' | '.join(columns)} |\n")
    return "".join(rows)


def _told(kept: dict[str, Any]) -> str:
    if not kept["told"]:
        return ""
    rows = [
        "## Errors seen by clients\n\nErrors that client libraries passed on, in the whole run.\n\n"
        "| client | error | times |\n|---|---|---:|\n"
    ]
    for told, count in kept["told"].items():
        who, _, what = told.partition(": ")
        rows.append(f"| {who} | {what.replace('|', ' ').replace('](', '] (')} | {count} |\n")
    return "".join(rows) + _HUNG


_HUNG = """
Where the copier "hung", librdkafka waited for ever for a group coordinator that was gone (its issues 5456 and 5511),
and another copier of the same name started after 15 s, as a supervisor would do; the first is then
fenced.

"""


def write() -> None:
    """Write the page."""
    PAGE.write_text(text(json.loads(RESULTS.read_text())))
