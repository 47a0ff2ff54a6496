"""Write the tables of docs/limits.md from settings and constants; ``--check`` says whether the page is current.

Each limit is named once, by the setting or the constant that is the limit: the page cannot differ from the code.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from magnetar.auth.scram import MAX_ITERATIONS
from magnetar.auth.tokens import MAX_TOKEN_CHARACTERS
from magnetar.pulsar.handlers.consume import MAX_IDS
from magnetar.records.chunks import MAX_PIECES
from magnetar.records.compression import MAX_DECOMPRESSED_BYTES
from magnetar.schema_registry.registry import MAX_SCHEMA_BYTES
from magnetar.settings.settings import Settings
from magnetar.topics.names import MAX_NAME_LENGTH
from magnetar.topics.topic import MAX_NEW_PARTITIONS, MAX_PARTITIONS
from magnetar.web.http import MAX_BODY_BYTES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "limits.md"
_SETTINGS = {each.name: each for each in Settings().declared.definitions.values()}
_NO_BOUND = {(1 << 31) - 1, (1 << 63) - 1}


@dataclass(frozen=True)
class Limit:
    """One row: what is limited, by a setting's default or a fixed number, and what happens beyond it."""

    what: str
    beyond: str
    setting: str = ""
    fixed: int = 0
    unit: str = ""
    no_bound: int | None = None
    """The value of the setting that means that there is no bound."""

    @property
    def row(self) -> str:
        """The row in Markdown."""
        if self.setting:
            made = _SETTINGS[self.setting]
            assert isinstance(made.default, int)
            none = made.default == self.no_bound or made.default in _NO_BOUND
            value = "no bound" if none else shown(made.default, made.unit)
            return f"| {self.what} | {value} | `{self.setting}` | {self.beyond} |"
        return f"| {self.what} | {shown(self.fixed, self.unit)} | fixed | {self.beyond} |"


TABLES: dict[str, tuple[Limit, ...]] = {
    "messages": (
        Limit("record batch of a Kafka producer", "MESSAGE_TOO_LARGE", "message.max.bytes"),
        Limit("message of a Pulsar producer", "MessageTooBig in the client", "pulsar.max.message.size"),
        Limit(
            "message in chunks that a Kafka client can read",
            "Kafka clients get its chunks as records, marked by headers",
            "chunked.message.max.bytes",
        ),
        Limit("chunks of one message", "as above", fixed=MAX_PIECES),
        Limit("batch after decompression", "INVALID_RECORD", fixed=MAX_DECOMPRESSED_BYTES, unit="bytes"),
        Limit("message ids in one Acknowledge command", "the connection is closed", fixed=MAX_IDS),
    ),
    "topics": (
        Limit("characters of a topic's name", "INVALID_TOPIC_EXCEPTION", fixed=MAX_NAME_LENGTH),
        Limit("partitions of one topic", "INVALID_PARTITIONS", fixed=MAX_PARTITIONS),
        Limit("new partitions in one request", "POLICY_VIOLATION", fixed=MAX_NEW_PARTITIONS),
        Limit(
            "topics of one namespace", "refused to either protocol", "max.topics.per.namespace", no_bound=0
        ),
        Limit("partitions of a topic that is created without a number", "", "num.partitions"),
        Limit("size of a ledger before the next one begins", "", "log.segment.bytes"),
        Limit("age at which records may be deleted", "", "log.retention.ms", no_bound=-1),
        Limit("size of a partition at which records may be deleted", "", "log.retention.bytes", no_bound=-1),
    ),
    "connections": (
        Limit("connections of all protocols", "more are closed immediately", "max.connections"),
        Limit("connections of one address", "more are closed immediately", "max.connections.per.ip"),
        Limit("idle time of a connection", "it is closed", "connections.max.idle.ms", no_bound=-1),
        Limit("one Kafka request", "the connection is closed", "socket.request.max.bytes"),
        Limit(
            "requests of all clients in memory",
            "the broker reads less until there is room",
            "memory.requests.bytes",
        ),
        Limit(
            "unanswered requests of a Kafka connection",
            "the broker stops reading from it",
            "queued.max.requests",
        ),
        Limit(
            "messages of a Pulsar connection that wait to be stored",
            "the broker stops reading from it",
            "max.pending.publish.requests.per.connection",
        ),
        Limit("body of an HTTP request", "status 413", fixed=MAX_BODY_BYTES, unit="bytes"),
        Limit("characters of a token", "the login fails", fixed=MAX_TOKEN_CHARACTERS),
        Limit("iterations of a SCRAM hash", "UNACCEPTABLE_CREDENTIAL", fixed=MAX_ITERATIONS),
    ),
    "groups": (
        Limit(
            "session timeout of a member, at least", "INVALID_SESSION_TIMEOUT", "group.min.session.timeout.ms"
        ),
        Limit(
            "session timeout of a member, at most", "INVALID_SESSION_TIMEOUT", "group.max.session.timeout.ms"
        ),
        Limit("members of a classic group", "GROUP_MAX_SIZE_REACHED", "group.max.size"),
        Limit("members of a share group", "GROUP_MAX_SIZE_REACHED", "group.share.max.size"),
        Limit("metadata of a committed offset", "OFFSET_METADATA_TOO_LARGE", "offset.metadata.max.bytes"),
        Limit(
            "retention of a group's offsets after its last member", "they expire", "offsets.retention.minutes"
        ),
        Limit(
            "deliveries of a record in a share group",
            "it is a dead letter",
            "group.share.delivery.count.limit",
        ),
        Limit(
            "unacknowledged messages of a Shared consumer",
            "it gets no more until it acknowledges",
            "max.unacked.messages.per.consumer",
            no_bound=0,
        ),
        Limit("time of a Kafka transaction", "INVALID_TRANSACTION_TIMEOUT", "transaction.max.timeout.ms"),
        Limit("memory of a silent transactional id", "it expires", "transactional.id.expiration.ms"),
        Limit("memory of a silent idempotent producer", "it expires", "producer.id.expiration.ms"),
        Limit("one schema of the registry", "error 42201", fixed=MAX_SCHEMA_BYTES, unit="bytes"),
        Limit("lines of one figure on `/metrics`", "the rest only in sums", "metrics.max.lines.per.figure"),
    ),
}


def shown(value: int, unit: str) -> str:
    """Return a number as people read it: 64 MiB, 7 days, 50,000."""
    for name, factors in {
        "bytes": (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)),
        "ms": (("days", 86_400_000), ("hours", 3_600_000), ("minutes", 60_000), ("s", 1000)),
        "minutes": (("days", 1440),),
    }.items():
        for word, factor in factors if unit == name else ():
            if value % factor == 0 and value >= factor * (2 if word in ("days", "hours") else 1):
                return f"{value // factor:,} {word}"
    return f"{value:,} {unit}".rstrip()


def page(text: str) -> str:
    """Return the page with its tables as the code has them now."""
    for name, limits in TABLES.items():
        begin, end = f"<!-- {name}: written by tools/limits_page.py -->", f"<!-- end of {name} -->"
        before, rest = text.split(begin, 1)
        rows = "\n".join(limit.row for limit in limits)
        table = f"| limit | default | setting | beyond it |\n|---|---:|---|---|\n{rows}"
        text = f"{before}{begin}\n{table}\n{end}{rest.split(end, 1)[1]}"
    return text


def main() -> int:
    """Write the page, or with ``--check`` return 1 if it is not what it should be."""
    text = PAGE.read_text()
    if "--check" in sys.argv[1:]:
        return int(page(text) != text)
    PAGE.write_text(page(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
