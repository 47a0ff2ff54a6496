"""The JSON Schema of what Pulsar's producers write with a JSON schema, which Pulsar describes in Avro's words.

It never refuses what a Pulsar consumer reads: fields may be missing (Pulsar's clients leave nulls out), others may be
there, and bytes may be text in whichever encoding the client's library has.
"""

from __future__ import annotations

import json
from typing import Any

_PLAIN: dict[str, Any] = {
    "null": {"type": "null"},
    "boolean": {"type": "boolean"},
    "int": {"type": "integer"},
    "long": {"type": "integer"},
    "float": {"type": "number"},
    "double": {"type": "number"},
    "bytes": {},
    "string": {"type": "string"},
}


def avro_as_json(definition: str) -> str:
    """Return the JSON Schema of an Avro definition; raise ``ValueError`` for what is none."""
    content = json.loads(definition)
    writer = _Writer()
    root = writer.of(content, "")
    made = {"$schema": "http://json-schema.org/draft-07/schema#"} | root
    if isinstance(content, dict) and "name" in content:
        made = {"$schema": made["$schema"], "title": content["name"]} | root
    if writer.definitions:
        made["definitions"] = writer.definitions
    return json.dumps(made, separators=(",", ":"), ensure_ascii=False)


class _Writer:
    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}

    def of(self, node: Any, namespace: str) -> dict[str, Any]:
        if isinstance(node, list):
            return {"anyOf": [self.of(each, namespace) for each in node]}
        if isinstance(node, str):
            if node in _PLAIN:
                return dict(_PLAIN[node])
            return {"$ref": f"#/definitions/{_full(node, namespace)}"}
        if not isinstance(node, dict) or "type" not in node:
            raise ValueError(f"no schema: {node!r}")
        kind = node["type"]
        if isinstance(kind, dict | list):
            return self.of(kind, namespace)
        if "logicalType" in node:
            return {}  # libraries write dates, times and decimals as numbers or as text
        if kind == "array":
            return {"type": "array", "items": self.of(node["items"], namespace)}
        if kind == "map":
            return {"type": "object", "additionalProperties": self.of(node["values"], namespace)}
        if kind in ("record", "error", "enum", "fixed"):
            return self._named(node, namespace)
        return self.of(kind, namespace)

    def _named(self, node: dict[str, Any], namespace: str) -> dict[str, Any]:
        name = _full(str(node["name"]), str(node.get("namespace", namespace)))
        self.definitions[name] = {}  # one that holds itself finds its place
        if node["type"] == "enum":
            made: dict[str, Any] = {"type": "string", "enum": node["symbols"]}
        elif node["type"] == "fixed":
            made = {}
        else:
            inside = name.rpartition(".")[0]
            # A field that is null may be written as such or left out, whatever the schema says.
            made = {
                "type": "object",
                "properties": {
                    each["name"]: _or_null(self.of(each["type"], inside)) for each in node["fields"]
                },
            }
        self.definitions[name] = made
        return {"$ref": f"#/definitions/{name}"}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    if not schema or {"type": "null"} in schema.get("anyOf", ()):
        return schema
    return {"anyOf": [*schema.get("anyOf", [schema]), {"type": "null"}]}


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
