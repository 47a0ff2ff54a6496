"""The clients of the cross tests: one process each for a whole run, asked by lines of JSON (clients/cross/lines.py)."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from processes import let_go
from run import HERE, HOME, PYTHON

ANSWER_SECONDS = 120


class Refused(Exception):
    """The client, or the broker through it, did not do what it was asked."""


@dataclass(frozen=True)
class Kind:
    """A client: how it is started, with which codecs it writes, and what it cannot tell of a message."""

    name: str
    protocol: str
    needs: str
    command: Sequence[str]
    codecs: Sequence[str]
    cannot_tell: frozenset[str] = frozenset()


_KAFKA_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_PULSAR_CODECS = ("none", "zlib", "snappy", "lz4", "zstd")
KINDS = (
    Kind("kafka-java", "kafka", "java", ("./kafka-tools.sh", "clients/cross/CrossKafka.java"), _KAFKA_CODECS),
    Kind("librdkafka", "kafka", "python", (str(PYTHON), "clients/cross/confluent.py"), _KAFKA_CODECS),
    Kind(
        "pulsar-python",
        "pulsar",
        "python",
        (str(PYTHON), "clients/cross/pulsar_python.py"),
        _PULSAR_CODECS,
        frozenset({"no key", "key_in_base64", "binary ordering key"}),
    ),
    Kind(
        "pulsar-java",
        "pulsar",
        "pulsar-java",
        ("./pulsar-java.sh", "clients/cross/CrossPulsar.java"),
        _PULSAR_CODECS,
    ),
    Kind(
        "pulsar-go",
        "pulsar",
        "pulsar-go",
        (str(HOME / "bin" / "pulsar-go"),),
        _PULSAR_CODECS,
        frozenset({"no key", "key_in_base64", "null value"}),
    ),
)


class Client:
    """A running client; ``write`` and ``read`` raise `Refused`."""

    def __init__(self, kind: Kind, addresses: Mapping[str, str]) -> None:
        scheme = "pulsar://" if kind.protocol == "pulsar" else ""
        self.kind = kind
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            [*kind.command, scheme + addresses[kind.protocol]],
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
        )
        self.version = str(self._answer()["version"])

    def write(
        self, topic: str, records: list[dict[str, Any]], *, codec: str, batched: bool, chunked: bool = False
    ) -> list[Any]:
        """Write the records in order; give the place of each."""
        request = {
            "do": "write",
            "topic": topic,
            "records": records,
            "codec": codec,
            "batched": batched,
            "chunked": chunked,
        }
        places: list[Any] = self._ask(request)["places"]
        return places

    def read(self, topic: str, count: int, start: Any = None, *, whole: bool = False) -> list[dict[str, Any]]:
        """Read so many records from the beginning, or from the record at a place; ``whole`` shows large values too."""
        request = {"do": "read", "topic": topic, "count": count, "from": start, "whole": whole}
        records: list[dict[str, Any]] = self._ask(request)["records"]
        return records

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Refused(self._last_words()) from None
        answer = self._answer()
        if "error" in answer:
            raise Refused(f"{self.kind.name}, {request['do']}: {answer['error']}")
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        watchdog = threading.Timer(ANSWER_SECONDS, self._process.kill)
        watchdog.start()
        try:
            for line in self._process.stdout:
                if line.startswith("{"):
                    answer: dict[str, Any] = json.loads(line)
                    return answer
        finally:
            watchdog.cancel()
        raise Refused(self._last_words())

    def _last_words(self) -> str:
        self._complaints.seek(0)
        return f"{self.kind.name} ended: {self._complaints.read()[-400:]}"

    def close(self) -> None:
        """End the process."""
        let_go(self._process)
