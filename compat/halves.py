"""Tables of the compatibility page beside the clients' checks: cross tests, administration, suites, applications."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

NAMES = {
    "kafka-java": "Kafka Java",
    "librdkafka": "librdkafka",
    "pulsar-python": "Pulsar Python/C++",
    "pulsar-java": "Pulsar Java",
    "pulsar-go": "Pulsar Go",
}
ELSEWHERE = {"cluster": "in a cluster", "proxy": "through a proxy"}
"""Where ours was asked besides, by column, in the reader's words."""
PEERS = {"kafka": "Apache Kafka", "pulsar": "Apache Pulsar"}
TESTS = ("records", "empty", "chunks", "relay")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cross(results: Mapping[str, Any]) -> str:
    """Writers by readers: how many of their topics were read as they should be, in each place that was asked."""
    parts = [f"Last run {when(results)}.\n\n{_crossed(results, 'magnetar')}"]
    for column, where in ELSEWHERE.items():
        if column in results:
            run = results.get("runs", {}).get(column, {})
            parts.append(f"{where.capitalize()}, last run {when(run)}:\n\n{_crossed(results, column)}")
    return "\n".join(parts)


def _crossed(results: Mapping[str, Any], column: str) -> str:
    found = results.get(column, ())
    fails_with_peers = {pair_of(each) for each in results.get("peers", ()) if not each["ok"]}
    rows = []
    for test in TESTS:
        for writer in NAMES:
            mine = [each for each in found if (each["test"], each["writer"]) == (test, writer)]
            if mine:
                readers = [[each for each in mine if each["reader"] == reader] for reader in NAMES]
                rows.append(
                    [f"{test}: {NAMES[writer]}", *(_tally(cells, fails_with_peers) for cells in readers)]
                )
    versions = results.get("versions", {})
    head = ["written by, read by", *(f"{NAMES[name]} {versions.get(name, '')}".strip() for name in NAMES)]
    return table(head, rows)


def pair_of(found: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """What makes one outcome the same with ours and with a peer, which has no entry formats."""
    return found["test"], found["cell"].rpartition("/")[2], found["writer"], found["reader"]


def _tally(cells: Sequence[Mapping[str, Any]], fails_with_peers: Collection[tuple[str, ...]]) -> str:
    if not cells:
        return "-"
    well = sum(each["ok"] for each in cells)
    known = sum(not each["ok"] and pair_of(each) in fails_with_peers for each in cells)
    failed = len(cells) - well - known
    words = f"{well} of {len(cells)}" + (f" ({known})" if known else "")
    return f"{words}, **{failed} fail**" if failed else words


def admin(results: Mapping[str, Any]) -> str:
    """Each check, on ours and on Pulsar."""
    rows = []
    for tool, entry in results.get("magnetar", {}).items():
        pulsar = results.get("pulsar", {}).get(tool, {}).get("checks", {})
        for name, check in entry["checks"].items():
            other = "-" if name not in pulsar else _yes(pulsar[name]["ok"])
            rows.append([f"{tool} {entry['version']}", check["meaning"], _yes(check["ok"]), other])
    return table(["tool", "what is done and checked", "magnetar", _short("pulsar")], rows)


def applications(results: Mapping[str, Any]) -> str:
    """Each application, on ours and on Kafka, and how it was seen to fail."""
    ours, theirs = results.get("magnetar", {}), results.get("kafka", {}).get("checks", {})
    broken = results.get("broken", {})
    rows = [
        [
            f"{check['meaning']}{_alone(check)}",
            _yes(check["ok"]),
            _yes(theirs[name]["ok"]) if name in theirs else "-",
            ", ".join(how for how, seen in broken.items() if seen.get(name, {}).get("failed")) or "-",
        ]
        for name, check in ours.get("checks", {}).items()
    ]
    head = ["what is done and checked", "magnetar", _short("kafka"), "seen to fail on a broker that"]
    return f"Last run {when(ours)}.\n\n" + table(head, rows)


def _alone(check: Mapping[str, Any]) -> str:
    """When a check ran that ran by itself."""
    return f" ({when(check)})" if "date" in check else ""


def _short(peer: str) -> str:
    return PEERS[peer].removeprefix("Apache ")


def _yes(ok: bool) -> str:
    return "yes" if ok else "**no**"


NOTES = {
    "librdkafka": "Tests that subscribe are run with both group protocols: @consumer is KIP-848's. Not asked at all: "
    "share groups, authentication and TLS, replicas on other brokers, its mocks and its performance tests.",
    "confluent-python": "Where only Magnetar's count is larger, the schema registry's tests make it so.",
    "pulsar-go": "The suite's findings have its admin package, too.",
}
"""What a reader of the counts must know."""


def suites(results: Mapping[str, Any]) -> str:
    """How the suites went on ours and, where they ran there, on a peer, and the tests in which both differ."""
    parts = []
    for suite, brokers in results.items():
        if "magnetar" not in brokers:
            continue
        ours = brokers["magnetar"]["outcomes"]
        told = [f"{suite}: {_passed(ours)} on Magnetar ({when(brokers['magnetar'])})"]
        elsewhere = {where: brokers[column] for column, where in ELSEWHERE.items() if column in brokers}
        told += [
            _beside(ours, run, f"{where} ({when(run)})", "on one broker") for where, run in elsewhere.items()
        ]
        differences = _by_place(ours, {where: run["outcomes"] for where, run in elsewhere.items()})
        for peer in sorted(brokers.keys() & PEERS.keys()):
            theirs = brokers[peer]["outcomes"]
            both = ours.keys() & theirs.keys()
            told.append(_beside(ours, brokers[peer], f"on {named(peer, brokers[peer])}", "here"))
            unlike = sorted(test for test in both if ours[test] != theirs[test])
            rows = [[f"`{test}`", ours[test], theirs[test]] for test in unlike]
            if rows:
                head = ["test", "Magnetar", named(peer, brokers[peer]).removeprefix("Apache ")]
                differences.append(table(head, rows))
        parts += [f"{', '.join(told)}. {NOTES.get(suite, '')}".rstrip() + "\n", *differences]
    return "\n".join(parts)


def _beside(ours: Mapping[str, str], run: Mapping[str, Any], where: str, here: str) -> str:
    """How many passed elsewhere, and of unlike sets, whose counts cannot be compared, on both."""
    theirs = run["outcomes"]
    if ours.keys() == theirs.keys():
        return f"{_passed(theirs)} {where}"
    both = ours.keys() & theirs.keys()
    mine, other = (_passed({test: those[test] for test in both}) for those in (ours, theirs))
    return f"of the {len(both)} that ran on both, {mine} {here} and {other} {where}"


def _by_place(ours: Mapping[str, str], elsewhere: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The tests that end otherwise elsewhere than on one broker, as a table of them all; none where there are none."""
    unlike = sorted(
        test
        for test, outcome in ours.items()
        if any(run.get(test, outcome) != outcome for run in elsewhere.values())
    )
    rows = [
        [f"`{test}`", ours[test], *(run.get(test, "not run") for run in elsewhere.values())]
        for test in unlike
    ]
    return [table(["test", "one broker", *elsewhere], rows)] if rows else []


def named(peer: str, run: Mapping[str, Any]) -> str:
    """A peer with the version that ran."""
    return f"{PEERS[peer]} {run.get('broker', '')}".rstrip()


def when(run: Mapping[str, Any]) -> str:
    """The date of a run, and what was run where that was kept."""
    return " at ".join(filter(None, (run.get("date", "never"), run.get("broker", ""))))


def _passed(outcomes: Mapping[str, str]) -> str:
    passed = sum(outcome == "passed" for outcome in outcomes.values())
    skipped = sum(outcome == "skipped" for outcome in outcomes.values())
    return f"{passed} of {len(outcomes)} pass" + (f" ({skipped} skip themselves)" if skipped else "")
