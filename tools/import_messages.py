"""Writes ``src/magnetar/wire/kafka/messages`` from the message definitions inside Kafka's own jars.

    python tools/import_messages.py kafka-clients-4.4.0.jar kafka_2.13-4.3.1/libs

Each source is a jar, or a directory with Kafka's jars; of two definitions of one name the earlier wins.
Taken are the APIs of the broker's listeners and the records that clients and coordinators store.
"""

from __future__ import annotations

import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from message_importer.catalog import catalog_source
from message_importer.module import module_source
from message_importer.outline import outline_source
from message_importer.schema import MessageSchema, parse_message, snake_case

TARGET = Path(__file__).parent.parent / "src/magnetar/wire/kafka/messages"
OUTLINE = Path(__file__).parent.parent / "tests/wire/outline.json"
DATA = {
    "AbortedTxn",
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "ControlRecordTypeSchema",
    "EndTxnMarker",
}


def main(sources: list[str]) -> None:
    definitions: dict[str, tuple[MessageSchema, str]] = {}
    for jar in jars(sources):
        for message in read_jar(jar):
            definitions.setdefault(message.name, (message, kafka_version(jar)))
    wanted = list(select({name: message for name, (message, _) in definitions.items()}))
    TARGET.mkdir(parents=True, exist_ok=True)
    for old in TARGET.glob("*.py"):
        old.unlink()
    for message in wanted:
        source = module_source(message, definitions[message.name][1])
        (TARGET / f"{snake_case(message.name)}.py").write_text(source)
    version = definitions["ApiVersionsRequest"][1]
    (TARGET / "__init__.py").write_text(catalog_source(wanted, version))
    OUTLINE.write_text(outline_source(wanted))
    print(f"wrote {len(wanted)} messages to {TARGET}")


def jars(sources: list[str]) -> Iterator[Path]:
    for source in map(Path, sources):
        yield from sorted(source.glob("kafka-*.jar")) if source.is_dir() else [source]


def kafka_version(jar: Path) -> str:
    found = re.search(r"-(\d+(?:\.\d+)+)\.jar$", jar.name)
    if found is None:
        raise SystemExit(f"{jar}: no version in its name")
    return found[1]


def read_jar(jar: Path) -> Iterator[MessageSchema]:
    with zipfile.ZipFile(jar) as opened:
        for name in sorted(opened.namelist()):
            if name.startswith("common/message/") and name.endswith(".json"):
                yield parse_message(opened.read(name).decode())


def select(definitions: dict[str, MessageSchema]) -> Iterator[MessageSchema]:
    """Give what a broker and its clients speak and keep, by name."""
    for name, message in sorted(definitions.items()):
        if not message.versions:
            continue
        request = (
            definitions.get(name.removesuffix("Response") + "Request")
            if message.type == "response"
            else message
        )
        on_broker = request is not None and "broker" in request.listeners
        if on_broker or message.type.startswith("coordinator-") or name in DATA:
            yield message


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(sys.argv[1:])
