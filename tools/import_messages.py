"""Writes ``src/magnetar/wire/kafka/messages`` from the message definitions inside Kafka's own jars.

    make codec

Maven brings the jars (``tools/message_importer/pom.xml``); each must have the checksum pinned here. They are kept in
``$MAGNETAR_KAFKA_JARS``, by default ``~/.cache/magnetar/kafka-definitions``.

Generated are the APIs of the broker's ``ROUTES``, which hold all that the client asks, and the ``STORED`` records.
A new API is a route more, a new record a line in ``STORED``; then ``make codec``.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from message_importer.catalog import catalog_source
from message_importer.module import module_source
from message_importer.outline import outline_source
from message_importer.schema import MessageSchema, parse_message, snake_case

from magnetar.kafka.handlers import ROUTE_BY_KEY

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "src/magnetar/wire/kafka/messages"
OUTLINE = ROOT / "tests/wire/outline.json"
DIGESTS = ROOT / "tests/wire/generated.sha256"
POM = ROOT / "tools/message_importer/pom.xml"
JARS = Path(os.environ.get("MAGNETAR_KAFKA_JARS") or Path.home() / ".cache/magnetar/kafka-definitions")
KAFKA_VERSION = "4.4.0"
CHECKSUMS = {
    "kafka-clients": "1ab07317eb6633241392449d329dbdc5d9251e6ffc4926860f42dd966e88bdf9",
    "kafka-group-coordinator": "3fc830ace54f6a13f9f536bc0564bf39a68797365a4c4b194bd7db4fb893b2bc",
    "kafka-share-coordinator": "6969a7961ca98d37a039bbe0af0fe761d6b0dd07ca9666802f47821167afbb6e",
    "kafka-transaction-coordinator": "1d5324d59776d6b7f324cfdc87647b1e88f9823332201c0324e7ae9f210d915d",
}
"""SHA-256 of each jar that has definitions which are wanted here."""
STORED = {
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "ConsumerProtocolAssignment",
    "ConsumerProtocolSubscription",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "ShareGroupCurrentMemberAssignmentKey",
    "ShareGroupCurrentMemberAssignmentValue",
    "ShareGroupMemberMetadataKey",
    "ShareGroupMemberMetadataValue",
    "ShareGroupMetadataKey",
    "ShareGroupMetadataValue",
    "ShareGroupStatePartitionMetadataKey",
    "ShareGroupStatePartitionMetadataValue",
    "ShareGroupTargetAssignmentMemberKey",
    "ShareGroupTargetAssignmentMemberValue",
    "ShareGroupTargetAssignmentMetadataKey",
    "ShareGroupTargetAssignmentMetadataValue",
    "ShareSnapshotKey",
    "ShareSnapshotValue",
    "ShareUpdateKey",
    "ShareUpdateValue",
    "StreamsGroupCurrentMemberAssignmentKey",
    "StreamsGroupCurrentMemberAssignmentValue",
    "StreamsGroupMemberMetadataKey",
    "StreamsGroupMemberMetadataValue",
    "StreamsGroupMetadataKey",
    "StreamsGroupMetadataValue",
    "StreamsGroupTargetAssignmentMemberKey",
    "StreamsGroupTargetAssignmentMemberValue",
    "StreamsGroupTargetAssignmentMetadataKey",
    "StreamsGroupTargetAssignmentMetadataValue",
    "StreamsGroupTopologyKey",
    "StreamsGroupTopologyValue",
    "TransactionLogKey",
    "TransactionLogValue",
}
"""What is kept in records, or travels inside other messages."""
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def main() -> None:
    fetch()
    generated = generate()
    for old in TARGET.glob("*.py"):
        old.unlink()
    for path, text in generated.items():
        path.write_text(text)
    print(f"wrote {len(generated)} files")


def jar_paths() -> list[Path]:
    """Return where the jars lie, or would."""
    return [JARS / f"{name}-{KAFKA_VERSION}.jar" for name in CHECKSUMS]


def fetch() -> None:
    """Let Maven bring the jars that are not there."""
    if not all(jar.exists() for jar in jar_paths()):
        command = ["mvn", "-q", "-B", "-f", str(POM), _COPY, f"-DoutputDirectory={JARS}"]
        subprocess.run([*command, "-DexcludeTransitive=true"], check=True)


def generate() -> dict[Path, str]:
    """Return every generated file with its text; nothing is written."""
    definitions: dict[str, MessageSchema] = {}
    for jar, checksum in zip(jar_paths(), CHECKSUMS.values(), strict=True):
        if hashlib.sha256(jar.read_bytes()).hexdigest() != checksum:
            raise SystemExit(f"{jar}: not the jar that is pinned in {__file__}")
        for message in read_jar(jar):
            definitions.setdefault(message.name, message)
    wanted = list(select(definitions))
    files = {
        TARGET / f"{snake_case(message.name)}.py": module_source(message, KAFKA_VERSION) for message in wanted
    }
    # Headers of APIs that are not served must be read, too, so that they get Kafka's own answer.
    known = [
        message for message in definitions.values() if message.versions and "broker" in message.listeners
    ]
    files[TARGET / "__init__.py"] = catalog_source(known, wanted, KAFKA_VERSION)
    files[OUTLINE] = outline_source(wanted)
    digests = {str(path.relative_to(ROOT)): hashlib.sha256(text.encode()) for path, text in files.items()}
    files[DIGESTS] = "".join(f"{digest.hexdigest()}  {path}\n" for path, digest in sorted(digests.items()))
    return files


def read_jar(jar: Path) -> Iterator[MessageSchema]:
    with zipfile.ZipFile(jar) as opened:
        for name in sorted(opened.namelist()):
            if name.startswith("common/message/") and name.endswith(".json"):
                yield parse_message(opened.read(name).decode())


def select(definitions: dict[str, MessageSchema]) -> Iterator[MessageSchema]:
    """Return what is served, stored or asked, by name."""
    missing = STORED - definitions.keys()
    if missing:
        raise SystemExit(f"no definitions of {sorted(missing)}")
    for name, message in sorted(definitions.items()):
        api = message.type in ("request", "response") and message.api_key in ROUTE_BY_KEY
        if message.versions and (api or name in STORED):
            yield message


if __name__ == "__main__":
    main()
