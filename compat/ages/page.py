"""The section of the compatibility page about clients of every age."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halves import ELSEWHERE, table, when

from ages.catalogue import Age, ages, names
from ages.steps import MEANINGS, NAMES, RECORDS

OURS, REFERENCE = "magnetar", "kafka"
OPENING = f"""What people run is seldom the newest: each of Kafka's clients in its oldest version that works with Apache
Kafka 4.4 (and installs today), one of about each year between, and its newest, asked the same by `compat/run_ages.py`.
One program serves all versions of a client; the list of versions is `compat/ages/clients.json`. What counts is not only
what comes back but what is stored: codecs of the batches, how many batches {RECORDS:,} records make, their times,
headers, producer ids, sequences and markers. Beside the counts stand the bytes of the topic of `codec_gzip` here and
on Kafka: the client decides by what the broker tells of itself whether it compresses at all. A dash: not asked there.
"""


def section(results: Mapping[str, Any]) -> str:
    """All versions by place, what each step is, what is left out, and what fails."""
    columns = [OURS, *(place for place in ELSEWHERE if place in results), REFERENCE]
    called = names()
    head = [
        "client",
        "version",
        "year",
        *(ELSEWHERE.get(each, each) for each in columns[:-1]),
        "Kafka",
        "gzip bytes",
    ]
    rows = [
        [
            called[age.client],
            age.version,
            str(age.year),
            *(_passed(_run(results, column, age)) for column in columns),
            " / ".join(_bytes(_run(results, column, age)) for column in (OURS, REFERENCE)),
        ]
        for age in ages()
    ]
    runs = [_run(results, OURS, age) for age in ages()]
    latest = max((run for run in runs if run), key=lambda run: str(run["date"]), default={})
    counts = [
        [
            f"`{step}`: {MEANINGS[step]}",
            *(_of_step(results, column, step) for column in columns),
        ]
        for step in NAMES
    ]
    parts = [
        f"Last run {when(latest)}.\n",
        table(head, rows),
        table(["step", *(ELSEWHERE.get(each, each) for each in columns[:-1]), "Kafka"], counts),
        _left_out(),
        _failed(results, columns),
    ]
    return "\n".join(part for part in parts if part)


def _run(results: Mapping[str, Any], column: str, age: Age) -> Mapping[str, Any]:
    found: Mapping[str, Any] = results.get(column, {}).get(age.client, {}).get(age.version, {})
    return found


def _passed(run: Mapping[str, Any]) -> str:
    steps = run.get("steps", {})
    return f"{sum(each['ok'] for each in steps.values())} of {len(steps)}" if steps else "-"


def _bytes(run: Mapping[str, Any]) -> str:
    stored = run.get("steps", {}).get("codec_gzip", {}).get("stored", {})
    return f"{stored['bytes']:,}" if "bytes" in stored else "-"


def _of_step(results: Mapping[str, Any], column: str, step: str) -> str:
    asked = [
        run["steps"][step]["ok"]
        for age in ages()
        if (run := _run(results, column, age)) and step in run["steps"]
    ]
    return f"{sum(asked)} of {len(asked)}" if asked else "-"


def _left_out() -> str:
    """What versions do not have, each reason once."""
    reasons: dict[tuple[str, str, str], list[str]] = {}
    for age in ages():
        for what, why in age.lacks.items():
            reasons.setdefault((age.client, what, why), []).append(age.version)
    called = names()
    lines = [
        f"- {called[client]} {', '.join(versions)}: `{what}` is left out: {why}\n"
        for (client, what, why), versions in reasons.items()
    ]
    return "".join(lines)


def _failed(results: Mapping[str, Any], columns: list[str]) -> str:
    called, lines = names(), []
    for age in ages():
        for column in columns:
            for step, each in _run(results, column, age).get("steps", {}).items():
                if not each["ok"]:
                    why = age.fails.get(step, "") or " ".join(each["detail"].split())
                    where = {OURS: "on Magnetar", REFERENCE: "on Kafka"}.get(
                        column, ELSEWHERE.get(column, "")
                    )
                    lines.append(f"- {called[age.client]} {age.version}, `{step}` fails {where}: {why}\n")
    return "".join(lines)
