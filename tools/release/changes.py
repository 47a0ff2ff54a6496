"""The fragments of ``changes/`` as a section of the changelog: what matters first, then by area."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

UNRELEASED = "## Not released yet\n"
AREAS = (
    (
        "Spark, pipelines and tables",
        r"spark|pipeline|delta|iceberg|parquet|lakehouse|\btables?\b|mirror of a topic",
    ),
    (
        "Security",
        r"acl|scram|sasl|\btls\b|token|grant|tenant|certificate|oauth|password|attack|bounds?\b|secret",
    ),
    ("Proxy", r"\bproxy\b|proxies"),
    ("Transactions", r"transaction|\btxn\b"),
    (
        "Groups, subscriptions and share groups",
        r"group|subscription|share|cursor|acknowledg|key_shared|redeliver",
    ),
    (
        "Clusters, workers and BookKeeper",
        r"zookeeper|bookie|bookkeeper|cluster|workers?\b|bundle|owner|several brokers",
    ),
    ("Compaction and tiered storage", r"compact|tiered|offload"),
    ("Storage", r"journal|ledger|disk|recover|retention|metadata store|flush"),
    ("Schema registry", r"schema|registry|avro|protobuf"),
    ("Moving from other systems", r"migrat|moving|\bkop\b|mirrormaker"),
    ("Command line, operations and documentation", r"`magnetar |docs/|/metrics|\blog\b|command|health|test"),
    ("Pulsar's protocol", r"pulsar"),
    ("Kafka's protocol", r"kafka|librdkafka|produce|fetch|api"),
)
OTHER = "Other"


class Fragment(NamedTuple):
    """One change: the name of its file, and its text on one line."""

    name: str
    text: str


def fragments(folder: Path) -> list[Fragment]:
    """Return the fragments of a directory by their names; raise ``ValueError`` for one without a word."""
    paths = (each for each in sorted(folder.glob("*.md")) if each.name != "README.md")
    found = [Fragment(each.stem, " ".join(each.read_text("utf-8").split())) for each in paths]
    if empty := [each.name for each in found if not each.text]:
        raise ValueError(f"changes/{empty[0]}.md says nothing")
    return found


def area(fragment: Fragment) -> str:
    """Return what a change is about: by the first sentence, for others often name what else is touched."""
    name = fragment.name.replace("-", " ")
    first = re.split(r"(?<=[.:])\s", fragment.text, maxsplit=1)[0]
    for text in (name, first, fragment.text):
        for title, pattern in AREAS:
            if re.search(pattern, text, re.IGNORECASE):
                return title
    return OTHER


def gathered(changes: Iterable[Fragment]) -> str:
    """Return fragments as lists by area, in the order of `AREAS`."""
    by_area: dict[str, list[str]] = {}
    for each in changes:
        by_area.setdefault(area(each), []).append(f"- {each.text}")
    titles = [title for title, _ in AREAS] + [OTHER]
    parts = [f"### {title}\n\n" + "\n".join(by_area[title]) for title in titles if title in by_area]
    return "\n\n".join(parts) + "\n"


def released(changelog: str, version: str, date: str, changes: Iterable[Fragment]) -> tuple[str, str]:
    """Return the changelog with a section for ``version``, and that section's text alone.

    What stood under "Not released yet" is its beginning; raise ``ValueError`` if there is no such section.
    """
    before, found, rest = changelog.partition(UNRELEASED)
    if not found:
        raise ValueError("CHANGELOG.md has no section 'Not released yet'")
    highlights, older, tail = rest.partition("\n## ")
    section = f"{highlights.strip()}\n\n{gathered(changes)}"
    return f"{before}{UNRELEASED}\n## {version} ({date})\n\n{section}{older}{tail}", section
