"""kafka-python reads what we write and writes what we read, wherever it knows the message and version."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages
from random import Random
from typing import Any
from uuid import UUID

import kafka.protocol
import pytest

from magnetar.wire.kafka.message import Record
from tests.wire.values import OUTLINE, build, field_names, message_class, versions_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
EXAMPLES = 6
AREAS = tuple(f"kafka.protocol.{area}" for area in ("admin", "consumer", "metadata", "producer", "sasl"))


def their_classes() -> dict[str, Any]:
    """Return kafka-python's message classes by name."""
    found = {}
    for module in walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if module.name.startswith(AREAS):
            for name, value in vars(import_module(module.name)).items():
                if name.endswith(("Request", "Response")) and hasattr(value, "valid_versions"):
                    found[name] = value
    return found


#: Where kafka-python departs from Kafka's definitions; the golden bytes from Kafka itself cover these.
APART = {
    "api_versions_response": "read as version 0 whenever it carries an error",
    "describe_cluster_response": "authorized operations are a set under another name",
    "describe_groups_response": "authorized operations are a set",
    "metadata_response": "authorized operations are a set under another name",
    "txn_offset_commit_request": "the generation has the name that it had before Kafka 4.4",
}
THEIRS = their_classes()
COMMON = [module for module in OUTLINE if OUTLINE[module]["name"] in THEIRS and module not in APART]


def test_most_of_kafka_pythons_messages_are_compared() -> None:
    assert len(COMMON) > 55


@pytest.mark.parametrize("module", COMMON)
def test_both_write_the_same_bytes_and_read_the_same_values(module: str) -> None:
    ours, theirs = message_class(module), THEIRS[OUTLINE[module]["name"]]
    low, high = theirs.valid_versions
    for version in versions_of(module):
        if not low <= version <= high:
            continue
        for example in range(EXAMPLES):
            message = build(module, version, Random(f"{module} {version} {example}"))
            written = message.encode(version)
            read = theirs.decode(written, version=version)
            same_values(module, version, message, read)
            read._header = None  # its own decoder forgets to, and its encoder asks for it
            assert ours.decode(read.encode(version=version), version) == message


def same_values(module: str, version: int, ours: Any, theirs: Any) -> None:
    """Compare field by field, names included."""
    if isinstance(ours, Record):
        for name in field_names(module, type(ours).__name__, version):
            value = getattr(ours, name)
            tagged = OUTLINE[module]["structs"][type(ours).__name__][name][3] >= 0
            if tagged and value is None:
                continue  # we say None for an absent struct, and they give its defaults
            same_values(module, version, value, getattr(theirs, name))
    elif isinstance(ours, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same_values(module, version, one, other)
    elif isinstance(theirs, UUID):
        assert ours == theirs.bytes
    elif theirs is None and ours is not None:
        assert ours == bytes(16)  # the zero UUID is None there
    else:
        assert ours == theirs
