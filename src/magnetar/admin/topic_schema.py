"""The schema of a Pulsar topic, as brokers answer with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicSchemaVersion:
    """One version of a topic's schema; ``definition`` is base64 of the bytes that Pulsar stores."""

    version: int
    kind: str
    definition: str
    properties: dict[str, str]
