"""A client of Confluent-compatible schema registries: schemas by id, and the versions of a subject.

Schemas never change once they have an id, so what was fetched is kept for the life of the process. A registry that
does not answer stops the run: its records are not bad, and must not become dead letters.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote

from magnetar.pipeline.jobs.spec import RegistrySpec
from magnetar.schema_registry.framing import Undecodable

_TRIES = 3
_TIMEOUT_S = 10.0


class RegistryUnavailable(Exception):
    """The registry does not answer, or not as a registry does."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """One registered schema. ``kind`` is AVRO, PROTOBUF or JSON; ``references`` are other schemas by the name used."""

    schema_id: int
    kind: str
    text: str
    references: tuple[tuple[str, RegisteredSchema], ...] = ()


class RegistryClient:
    """Asks one registry, and remembers its answers."""

    def __init__(self, spec: RegistrySpec) -> None:
        import httpx

        auth = (spec.username, spec.password) if spec.username else None
        self._url = spec.url
        self._client = httpx.Client(
            auth=auth, timeout=_TIMEOUT_S, headers={"Accept": "application/vnd.schemaregistry.v1+json"}
        )
        self._by_id: dict[int, RegisteredSchema | None] = {}

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return the schema with this id; raise `Undecodable` if there is none."""
        if schema_id not in self._by_id:
            found = self._get(f"/schemas/ids/{schema_id}")
            self._by_id[schema_id] = None if found is None else self._schema(schema_id, found)
        known = self._by_id[schema_id]
        if known is None:
            raise Undecodable(f"the registry at {self._url} has no schema with id {schema_id}")
        return known

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """Return all schemas of a subject, the newest last; none if there is no such subject."""
        numbers = self._get(f"/subjects/{quote(subject, safe='')}/versions") or []
        return [each for number in numbers if (each := self._version(subject, number)) is not None]

    def _version(self, subject: str, number: int) -> RegisteredSchema | None:
        found = self._get(f"/subjects/{quote(subject, safe='')}/versions/{number}")
        return None if found is None else self._schema(int(found["id"]), found)

    def _schema(self, schema_id: int, found: dict[str, Any]) -> RegisteredSchema:
        references = []
        for each in found.get("references") or ():
            other = self._version(each["subject"], each["version"])
            if other is None:
                raise RegistryUnavailable(
                    f"schema {schema_id} refers to {each['subject']}, which {self._url} does not have"
                )
            references.append((str(each["name"]), other))
        return RegisteredSchema(
            schema_id, found.get("schemaType", "AVRO"), found["schema"], tuple(references)
        )

    def _get(self, path: str) -> Any:
        """Return the answer, or None for 404."""
        import httpx

        for attempt in range(_TRIES):
            try:
                answer = self._client.get(self._url + path)
                if answer.status_code == 404:
                    return None
                if answer.status_code < 500:
                    answer.raise_for_status()
                    return answer.json()
                why = f"it answers {answer.status_code} to {path}"
            except httpx.HTTPStatusError as error:
                raise RegistryUnavailable(
                    f"the schema registry at {self._url} refuses {path}: {error}"
                ) from None
            except (httpx.HTTPError, ValueError) as error:
                why = str(error) or type(error).__name__
            if attempt + 1 < _TRIES:
                time.sleep(0.2 * 2**attempt)
        raise RegistryUnavailable(f"the schema registry at {self._url} does not answer: {why}")


@cache
def registry(spec: RegistrySpec) -> RegistryClient:
    """Return this process's client of a registry."""
    return RegistryClient(spec)
