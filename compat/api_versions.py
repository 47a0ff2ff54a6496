#!/usr/bin/env python3
"""Compare what brokers answer to ApiVersions: every API, version and feature, in each version that is asked.

compat/api_versions.py NAME=HOST:PORT ...   ask each broker, and keep its answers in results/api_versions.json
compat/api_versions.py                      print how the kept answers of others differ from Kafka's, and why

Clients read more from this answer than what they may ask: librdkafka switches codecs off by it, and Java clients of
some years end at a feature that they cannot read. So an answer is like Kafka's, but for what `WHY` names.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
from pathlib import Path

FILE = Path(__file__).resolve().parent / "results" / "api_versions.json"
REFERENCE = "kafka"
VERSIONS = (0, 1, 2, 3, 4, 5, 6, 99, -1)
API_VERSIONS, UNSUPPORTED_VERSION = 18, 35
FIRST_FLEXIBLE = 3
SUPPORTED, EPOCH, FINALIZED = 0, 1, 2
"""Tags of the answer's fields."""

CONTROLLERS = "there are no controllers beside the brokers"
NO_LOG = "it numbers the format of the controllers' log, which there is none of"
WHY = {
    "API 64": f"UnregisterBroker: {CONTROLLERS} that remember a broker when it has gone",
    "API 80": f"AddRaftVoter: {CONTROLLERS}",
    "API 81": f"RemoveRaftVoter: {CONTROLLERS}",
    "API 93": "StreamsGroupTopologyDescriptionUpdate: a plugin of Kafka's stores it, which there is none of, and "
    "clients send it only when a heartbeat asks for it",
    "API 94": f"UnregisterController: {CONTROLLERS}",
    "supported metadata.version": NO_LOG,
    "supported kraft.version": NO_LOG,
    "finalized metadata.version": NO_LOG,
    "finalized kraft.version": NO_LOG,
    "supported eligible.leader.replicas.version": "a partition has no replicas that could be eligible, so only level 0",
    "finalized eligible.leader.replicas.version": "a partition has no replicas that could be eligible, so only level 0",
}
"""Why an answer differs from Kafka's there."""
WHY_OF_PROXIES = {
    "API 55": "DescribeQuorum tells of controllers, which no client of a proxy reaches",
    **{f"API {key}": "brokers ask each other so, by their own addresses" for key in range(83, 88)},
}
"""Why the answer that passes through a proxy differs in more."""


class Reader:
    """Reads one answer."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> tuple:
        found = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return found

    def length(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(">B")
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def word(self) -> str:
        return self.take(f"{self.length() - 1}s")[0].decode()

    def features(self) -> dict[str, list[int]]:
        found = {}
        for _ in range(self.length() - 1):
            name = self.word()
            found[name] = sorted(self.take(">hh"))  # a finalized one has its highest first
            self.length()
        return found


def request(version: int) -> bytes:
    head = struct.pack(">hhih", API_VERSIONS, version, 1, -1)
    if version < FIRST_FLEXIBLE:
        return head
    named = b"\0" + b"".join(bytes([len(word) + 1]) + word for word in (b"compat", b"1.0"))
    return head + named + (b"\0" + struct.pack(">i", -1) if version >= 5 else b"") + b"\0"


def ask(address: str, version: int) -> bytes:
    """Return the whole answer, without its size."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        asked = request(version)
        connection.sendall(struct.pack(">i", len(asked)) + asked)
        with connection.makefile("rb") as incoming:
            (size,) = struct.unpack(">i", incoming.read(4))
            return incoming.read(size)


def read(answer: bytes, version: int) -> dict:
    """Return what an answer to that version says; one with UNSUPPORTED_VERSION is written in version 0."""
    reader = Reader(answer)
    _, error = reader.take(">ih")
    if error == UNSUPPORTED_VERSION:
        version = 0
    is_flexible = version >= FIRST_FLEXIBLE
    found: dict = {"error": error, "apis": {}, "supported": {}, "finalized": {}}
    for _ in range(reader.length() - 1 if is_flexible else reader.take(">i")[0]):
        key, first, last = reader.take(">hhh")
        found["apis"][str(key)] = [first, last]
        if is_flexible:
            reader.length()
    if version >= 1:
        reader.take(">i")
    for _ in range(reader.length() if is_flexible else 0):
        tag, end = reader.length(), reader.length() + reader.at
        if tag in (SUPPORTED, FINALIZED):
            found["supported" if tag == SUPPORTED else "finalized"] = reader.features()
        elif tag != EPOCH:  # an epoch counts what has happened to a cluster
            found[f"tag {tag}"] = answer[reader.at : end].hex()
        reader.at = end
    if reader.at != len(answer):
        raise ValueError(f"{len(answer) - reader.at} bytes are left of the answer to version {version}")
    return found


def asked(address: str) -> dict[str, dict]:
    """Return a broker's answer to each version."""
    return {str(version): read(ask(address, version), version) for version in VERSIONS}


def differences(theirs: dict, ours: dict) -> dict[str, tuple]:
    """Return by version and field what two brokers answer, where that is not the same."""
    found = {}
    for version in theirs:
        said, heard = flat(theirs[version]), flat(ours[version])
        for field in sorted(said.keys() | heard.keys()):
            if said.get(field) != heard.get(field):
                found.setdefault(field, (said.get(field), heard.get(field), []))[2].append(int(version))
    return found


def flat(answer: dict) -> dict[str, object]:
    fields = {f"API {key}": tuple(row) for key, row in answer["apis"].items()}
    for kind in ("supported", "finalized"):
        fields |= {f"{kind} {name}": tuple(row) for name, row in answer[kind].items()}
    return fields | {
        name: value for name, value in answer.items() if name not in ("apis", "supported", "finalized")
    }


def reasons(name: str) -> dict[str, str]:
    """Return why an answer differs from Kafka's, by field."""
    return WHY | WHY_OF_PROXIES if name == "proxy" else WHY


def main() -> int:
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    for word in sys.argv[1:]:
        name, _, address = word.partition("=")
        kept[name] = asked(address)
    if len(sys.argv) > 1:
        FILE.write_text(json.dumps(kept, indent=None, sort_keys=True).replace('}, "', '},\n"') + "\n")
    unexplained = 0
    for name in kept.keys() - {REFERENCE}:
        for field, (theirs, ours, versions) in differences(kept[REFERENCE], kept[name]).items():
            why = reasons(name).get(field)
            unexplained += why is None
            print(f"{name}: {field}: {theirs} and here {ours} in versions {versions}: {why or 'NO REASON'}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
