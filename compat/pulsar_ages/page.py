"""The part of the compatibility page about Pulsar's clients of every age."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from halves import table, when

OURS, REFERENCE = "magnetar", "pulsar"
_CLIENTS: Mapping[str, Any] = json.loads(Path(__file__).with_name("clients.json").read_text())
OPENING = """\
Pulsar's own clients, asked by `compat/run_pulsar_ages.py`: all codecs in batches and one by one, the four types of
subscription, readers, seeking, schemas, delays, dead letters, chunks, and where the client has them transactions and
administration. One program serves all versions of a client (`compat/pulsar_ages`). What counts is also what is stored:
codec, batches, sequence ids and the producer's name, as Pulsar's own protocol gives them. With `--pulsar` the same is
asked of Apache Pulsar: a step that fails there too is the client's own. A dash: not asked.
"""


def section(results: Mapping[str, Any]) -> str:
    """How many steps each version does, here and on Pulsar, and which it does not."""
    rows, faults, runs = [], [], []
    for client, about in _CLIENTS.items():
        for release in about["versions"]:
            ours, theirs = (_run(results, column, client, release) for column in (OURS, REFERENCE))
            rows.append([about["name"], release, _passed(ours), _passed(theirs)])
            faults += _faults(about["name"], release, ours, theirs)
            runs += [ours] if ours else []
    latest = max(runs, key=lambda run: str(run["date"]), default={})
    parts = [
        f"Last run {when(latest)}.\n",
        table(["client", "version", "Magnetar", "Pulsar"], rows),
        "".join(faults),
    ]
    return "\n".join(part for part in parts if part)


def _run(results: Mapping[str, Any], column: str, client: str, release: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = results.get(column, {}).get(client, {}).get(release, {})
    return found


def _passed(run: Mapping[str, Any]) -> str:
    steps = run.get("steps", {}).values()
    return f"{sum(each['ok'] for each in steps)} of {len(steps)}" if steps else "-"


def _faults(name: str, release: str, ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """One line for each thing that goes wrong, with the steps in which it does, and where."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for step in ours.get("steps", {}) | theirs.get("steps", {}):
        here, there = (run.get("steps", {}).get(step, {"ok": True}) for run in (ours, theirs))
        if not here["ok"] or not there["ok"]:
            where = (
                "on both" if not here["ok"] and not there["ok"] else "here" if there["ok"] else "on Pulsar"
            )
            reason = here["detail"] if not here["ok"] else there["detail"]
            by_reason.setdefault((where, " ".join(reason.split())), []).append(f"`{step}`")
    return [
        f"- {name} {release}, {', '.join(steps)}, {where}: {reason}\n"
        for (where, reason), steps in by_reason.items()
    ]
