"""What is asked of a schema registry with Confluent's REST API: schemas by id and by subject, and registering one."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from magnetar.admin.errors import AdminError, Declined, Forbidden, NotThere, Unreachable
from magnetar.admin.http_endpoint import HttpEndpoint

_CONTENT = "application/vnd.schemaregistry.v1+json"
_ASK_AGAIN_S = 5.0
_MAX_KNOWN = 1_000
_MAX_REFERENCES = 100
"""Of one schema, those of its references counted in."""


@dataclass(frozen=True, slots=True)
class FetchedSchema:
    """One registered schema.

    ``kind`` is AVRO, PROTOBUF or JSON; ``references`` are the schemas it needs, each before those that need it, by
    the names under which they are used. ``text`` of a Protobuf schema is its descriptor in base64 where the registry
    gives it so.
    """

    schema_id: int
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class RemoteRegistry:
    """Asks one registry and remembers its schemas, which never change once they have an id."""

    def __init__(self, url: str) -> None:
        self._http = HttpEndpoint(
            url,
            "schema registry",
            "a schema registry",
            "Name it with --schema-registry or MAGNETAR_SCHEMA_REGISTRY.",
        )
        self._by_id: dict[int, FetchedSchema | None] = {}
        self._away: tuple[float, AdminError] | None = None

    def schema(self, schema_id: int) -> FetchedSchema:
        """Return the schema with an id; raise `NotThere` if there is none, or what is wrong with the registry.

        A registry that did not answer is not asked again for a few seconds: many records may ask for it.
        """
        if self._away is not None and time.monotonic() - self._away[0] < _ASK_AGAIN_S:
            raise self._away[1]
        if schema_id not in self._by_id:
            if len(self._by_id) >= _MAX_KNOWN:
                self._by_id.clear()
            try:
                self._by_id[schema_id] = self._asked(schema_id)
            except NotThere:
                self._by_id[schema_id] = None
            except AdminError as error:
                self._away = time.monotonic(), error
                raise
        found = self._by_id[schema_id]
        if found is None:
            raise NotThere(f"the schema registry at {self._http.shown} has no schema with id {schema_id}")
        return found

    def latest(self, subject: str) -> FetchedSchema:
        """Return the newest schema of a subject."""
        return self.schema(int(self._get(f"/subjects/{quote(subject, safe='')}/versions/latest")["id"]))

    def register(self, subject: str, kind: str, text: str) -> FetchedSchema:
        """Return the schema under a subject, registered unless it is there already."""
        body = json.dumps({"schema": text, "schemaType": kind}).encode()
        path = f"/subjects/{quote(subject, safe='')}/versions"
        return self.schema(int(self._answer("POST", path, body)["id"]))

    def _asked(self, schema_id: int) -> FetchedSchema:
        path = f"/schemas/ids/{schema_id}"
        found = self._get(path)
        kind = found.get("schemaType") or "AVRO"
        if kind == "PROTOBUF":
            found = self._get(f"{path}?format=serialized")
        references: dict[str, str] = {}
        self._collect(found, kind, references)
        return FetchedSchema(schema_id, kind, found["schema"], tuple(references.items()))

    def _collect(self, found: dict[str, Any], kind: str, into: dict[str, str]) -> None:
        for each in found.get("references") or ():
            if each["name"] in into:
                continue
            if len(into) == _MAX_REFERENCES:
                raise Declined(f"a schema refers to more than {_MAX_REFERENCES} others")
            path = f"/subjects/{quote(each['subject'], safe='')}/versions/{int(each['version'])}"
            other = self._get(path + ("?format=serialized" if kind == "PROTOBUF" else ""))
            self._collect(other, kind, into)
            into[each["name"]] = other["schema"]

    def _get(self, path: str) -> Any:
        return self._answer("GET", path, None)

    def _answer(self, method: str, path: str, body: bytes | None) -> Any:
        status, content = self._http.request(method, path, body, _CONTENT)
        try:
            said = json.loads(content)
        except ValueError:
            said = None
        if status == 200 and isinstance(said, dict):
            return said
        reason = said.get("message", "") if isinstance(said, dict) else ""
        where = f"the schema registry at {self._http.shown}"
        if status == 404 and isinstance(said, dict) and "error_code" in said:
            raise NotThere(f"{where}: {reason}", "'--schema FILE' registers one.")
        if status in (401, 403):
            raise Forbidden(f"{where} does not let you in: {reason}", "Give a user, or a token.")
        if status in (409, 422):
            raise Declined(f"{where} refuses the schema: {reason}")
        raise Unreachable(
            f"{where} answered {status} to {path}: {reason or content[:100].decode(errors='replace')}",
            "Is that a schema registry?",
        )
