"""README.txt of a bundle: what each file is, what is missing, what is left out, and how secrets were looked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap

NAMES = {
    "README.txt": "what each file is, what is missing and what is left out",
    "version.json": "versions of the command's Magnetar, Python, system and packages",
    "state.json": "the running broker: process, memory, descriptors, listeners, kinds of clients",
    "settings.json": "every setting with its value and what gave it; *** for a secret that is set",
    "health.json": "what is not as it should be, as 'magnetar health' shows it",
    "doctor.json": "what 'magnetar doctor --json' finds",
    "metrics.txt": "what /metrics has, up to 2 MB",
    "inventory.json": "how many topics, partitions and groups there are, and their names if --names asked for them",
    "why.json": "the one reason for which each of up to 20 stuck groups does not move",
    "log.txt": "the newest 500 log lines that the broker remembers",
    "log-file.txt": "the last 1 MB of the file that the broker logs to",
    "stacks.txt": "where the broker's threads and tasks are",
    "process.txt": "the broker's process as the system sees it: memory, limits, threads",
    "directory.txt": "names and sizes of the files in the data directory",
}  # fmt: skip
"""Every file that a bundle may have, in the order in which they are shown, and what it is."""
LEFT_OUT = (
    "records, their keys and headers, schemas and all else that is in the files of the data directory",
    "users, their salts and keys, grants, ACLs and delegation tokens",
    "values of secret settings, the environment, and files of keys and certificates",
    "the audit log",
)
_HOW = (
    "Secrets were looked for in every file: values of secret settings of the broker and of the command, passwords in "
    "JAAS texts, variables of the environment that are named so; and what looks like one: private keys in PEM, JWTs, "
    "words such as password=, token=, Authorization: with what follows, logins of SASL PLAIN and SCRAM, passwords in "
    "URLs. All of them are *** here. A secret that is none of these, in a log line of your own code or in a client's "
    "name, cannot be known: look through the files before you send them. They are text."
)
_NAMES_HIDDEN = (
    "Names of topics, groups and subscriptions are numbers here (topic-1, group-1), the same in all files; with "
    "--names they stay. Names of tenants, namespaces, users, clients and hosts are there, and names of topics that "
    "have been deleted may be in log lines."
)


def left_out(*, names: bool) -> tuple[str, ...]:
    """Return what no bundle has."""
    return LEFT_OUT if names else (*LEFT_OUT, "names of topics, groups and subscriptions (--names)")


def readme(
    name: str,
    files: Mapping[str, str],
    missing: Mapping[str, str],
    notes: Iterable[str],
    *,
    names: bool,
) -> str:
    """Return its text."""
    parts = [
        name,
        "Made by 'magnetar bundle'.",
        "",
        "Files:",
        *_rows({"README.txt": NAMES["README.txt"], **files}),
    ]
    if missing:
        parts += ["", "Missing:", *_rows(missing)]
    parts += ["", "Left out:", *(line for each in (*left_out(names=names), *notes) for line in _item(each))]
    parts += ["", *wrap(_HOW, 100)]
    if not names:
        parts += ["", *wrap(_NAMES_HIDDEN, 100)]
    return "\n".join(parts) + "\n"


def _rows(rows: Mapping[str, str]) -> Iterator[str]:
    for name, about in rows.items():
        yield from wrap(f"{name:<16}{about}", 100, initial_indent="  ", subsequent_indent=" " * 18)


def _item(text: str) -> list[str]:
    return wrap(text, 100, initial_indent="  - ", subsequent_indent="    ")
