"""A schema registry that speaks the documented REST API of Confluent's, as far as readers and writers need it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class SchemaRegistry:
    """Serves on a free port of this machine until it is closed; ``failing`` makes it answer 500 to everything."""

    def __init__(self) -> None:
        self.failing = False
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, list[int]] = {}
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, answer = registry._get(unquote(urlsplit(self.path).path).strip("/").split("/"))
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def register(
        self, subject: str, schema: str | dict[str, Any], kind: str = "AVRO", references: Any = ()
    ) -> int:
        """Add a version to a subject; give the schema's id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        schema_id = len(self._schemas) + 1
        stored: dict[str, Any] = {"schema": text}
        if kind != "AVRO":
            stored["schemaType"] = kind
        if references:
            stored["references"] = list(references)
        self._schemas[schema_id] = stored
        self._subjects.setdefault(subject, []).append(schema_id)
        return schema_id

    def _get(self, path: list[str]) -> tuple[int, Any]:
        if self.failing:
            return 500, {"error_code": 50001, "message": "Error in the backend datastore"}
        match path:
            case ["schemas", "ids", number] if int(number) in self._schemas:
                return 200, self._schemas[int(number)]
            case ["subjects", subject, "versions"] if subject in self._subjects:
                return 200, list(range(1, len(self._subjects[subject]) + 1))
            case ["subjects", subject, "versions", number] if subject in self._subjects:
                schema_id = self._subjects[subject][int(number) - 1]
                told = {"subject": subject, "version": int(number), "id": schema_id}
                return 200, told | self._schemas[schema_id]
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
