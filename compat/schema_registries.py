"""The same questions to schema registries, ours and others': Confluent's serializers, the REST codes, pipelines.

    python compat/schema_registries.py --magnetar --apicurio 2.6.13.Final
    python compat/schema_registries.py --url http://127.0.0.1:8081

Each registry gets a fresh set of subjects. What came of it goes to ``results/schema_registries.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, message_factory

from magnetar.pipeline.jobs.decode.decoder import plan
from magnetar.pipeline.jobs.spec import ProjectSpec, RegistrySpec, TopicSpec

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "schema_registries.json"
START_SECONDS = 120
SEAT = {"type": "record", "name": "Seat", "fields": [{"name": "row", "type": "int"}]}
WIDER = SEAT | {"fields": [*SEAT["fields"], {"name": "letter", "type": "string", "default": "?"}]}  # type: ignore[misc]
OTHER = SEAT | {"fields": [{"name": "row", "type": "string"}]}
PERSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}},
}
ORDER = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  message Line { string sku = 1; uint32 pieces = 2; }
  int64 id = 1;
  map<string, Line> lines = 2;
  google.protobuf.Timestamp at = 3;
}
"""


class Questions:
    """What is asked of one registry; each check raises where it is not as it should be."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = SchemaRegistryClient({"url": url})
        self.http = httpx.Client(base_url=url, timeout=30)
        self._run = uuid.uuid4().hex[:8]

    def topic(self, name: str) -> str:
        return f"{name}-{self._run}"

    def checks(self) -> dict[str, Callable[[], None]]:
        """Return the checks by name."""
        return {
            name.removeprefix("check_").replace("_", " "): getattr(self, name)
            for name in vars(type(self))
            if name.startswith("check_")
        }

    def check_avro_serializer_and_deserializer(self) -> None:
        topic = self.topic("avro")
        value = AvroSerializer(self.client, json.dumps(SEAT))({"row": 1}, of(topic))
        assert AvroDeserializer(self.client)(value, of(topic)) == {"row": 1}

    def check_json_serializer_and_deserializer(self) -> None:
        topic = self.topic("json")
        value = JSONSerializer(json.dumps(PERSON), self.client)({"name": "Ada"}, of(topic))
        read = JSONDeserializer(None, schema_registry_client=self.client)
        assert read(value, of(topic)) == {"name": "Ada"}

    def check_protobuf_serializer_and_deserializer(self) -> None:
        topic, order = self.topic("protobuf"), order_class()
        row = order(id=7, lines={"a": {"sku": "bolt", "pieces": 3}}, at={"seconds": 9})
        told = {"use.deprecated.format": False}
        value = ProtobufSerializer(order, self.client, told)(row, of(topic))
        fresh = SchemaRegistryClient({"url": self.url})
        assert ProtobufDeserializer(order, told, fresh)(value, of(topic)) == row

    def check_an_incompatible_version_is_refused_with_409(self) -> None:
        topic = self.topic("compat")
        self.http.put(f"/config/{topic}-value", json={"compatibility": "BACKWARD"}).raise_for_status()
        AvroSerializer(self.client, json.dumps(SEAT))({"row": 1}, of(topic))
        AvroSerializer(self.client, json.dumps(WIDER))({"row": 1, "letter": "F"}, of(topic))
        status = 200
        try:
            AvroSerializer(self.client, json.dumps(OTHER))({"row": "1"}, of(topic))
        except SchemaRegistryError as error:
            status = error.http_status_code
        assert status == 409, status

    def check_codes_of_what_is_not_there(self) -> None:
        for path, code in (
            ("/subjects/nowhere/versions", 40401),
            (f"/subjects/{self._subject()}/versions/99", 40402),
            ("/schemas/ids/2000000000", 40403),
        ):
            answer = self.http.get(path)
            assert (answer.status_code, answer.json()["error_code"]) == (404, code), (path, answer.text)

    def check_codes_of_what_is_wrong(self) -> None:
        for body, code in (({"schema": "{"}, 42201), ({"schema": "x", "schemaType": "AVRO"}, 42201)):
            answer = self.http.post(f"/subjects/{self.topic('wrong')}/versions", json=body)
            assert (answer.status_code, answer.json()["error_code"]) == (422, code), answer.text
        answer = self.http.get(f"/subjects/{self._subject()}/versions/zero")
        assert (answer.status_code, answer.json()["error_code"]) == (422, 42202), answer.text

    def check_deletion_first_soft_then_for_good(self) -> None:
        subject = self._subject()
        schema_id = self.http.get(f"/subjects/{subject}/versions/1").json()["id"]
        answer = self.http.delete(f"/subjects/{subject}", params={"permanent": "true"})
        assert (answer.status_code, answer.json()["error_code"]) == (404, 40405), answer.text
        assert self.http.delete(f"/subjects/{subject}").json() == [1]
        assert self.http.get(f"/schemas/ids/{schema_id}").status_code == 200
        assert self.http.delete(f"/subjects/{subject}", params={"permanent": "true"}).json() == [1]
        assert self.http.get(f"/subjects/{subject}/versions").status_code == 404

    def check_pipeline_decodes_avro_of_two_versions(self) -> None:
        topic = self.topic("seats")
        values = [
            AvroSerializer(self.client, json.dumps(SEAT))({"row": 1}, of(topic)),
            AvroSerializer(self.client, json.dumps(WIDER))({"row": 2, "letter": "F"}, of(topic)),
            b"\0\x7f\0\0\0\x02",
        ]
        rows = self._decoded(TopicSpec(topic=topic, format="avro", subjects=(f"{topic}-value",)), values)
        assert [each["row"] for each in rows[:2]] == [{"row": 1, "letter": "?"}, {"row": 2, "letter": "F"}]
        assert "has no schema with id" in rows[2]["error"]

    def check_pipeline_decodes_avro_with_a_reference(self) -> None:
        topic, town = self.topic("trips"), self.topic("town")
        inner = {
            "type": "record",
            "name": "Town",
            "namespace": "x",
            "fields": [{"name": "name", "type": "string"}],
        }
        outer = {
            "type": "record",
            "name": "Trip",
            "namespace": "x",
            "fields": [{"name": "to", "type": "x.Town"}],
        }
        self.client.register_schema(town, Schema(json.dumps(inner), "AVRO"))
        schema = Schema(json.dumps(outer), "AVRO", [SchemaReference("x.Town", town, 1)])
        value = AvroSerializer(self.client, schema)({"to": {"name": "Ulm"}}, of(topic))
        (row,) = self._decoded(TopicSpec(topic=topic, format="avro", subjects=(f"{topic}-value",)), [value])
        assert row["row"] == {"to": {"name": "Ulm"}}, row

    def check_pipeline_decodes_protobuf_registered_as_text(self) -> None:
        topic = self.topic("orders-text")
        self._protobuf(topic, ORDER)

    def check_pipeline_decodes_protobuf_registered_by_pythons_serializer(self) -> None:
        topic = self.topic("orders-python")
        self._protobuf(topic, None)

    def _protobuf(self, topic: str, text: str | None) -> None:
        order = order_class()
        told: dict[str, Any] = {"use.deprecated.format": False}
        row = order(id=7, lines={"a": {"sku": "bolt", "pieces": 3}})
        if text is None:
            value = ProtobufSerializer(order, self.client, told)(row, of(topic))
        else:
            schema_id = self.client.register_schema(f"{topic}-value", Schema(text, "PROTOBUF"))
            value = b"\0" + schema_id.to_bytes(4, "big") + b"\0" + row.SerializeToString()
        asked = TopicSpec(topic=topic, format="protobuf", subjects=(f"{topic}-value",))
        (found,) = self._decoded(asked, [value])
        assert found["error"] is None, found
        assert found["row"]["lines"] == [("a", {"sku": "bolt", "pieces": 3})], found

    def _subject(self) -> str:
        subject = f"{self.topic(uuid.uuid4().hex[:6])}-value"
        schema = SEAT | {"name": f"R{uuid.uuid4().hex}"}
        self.client.register_schema(subject, Schema(json.dumps(schema), "AVRO"))
        return subject

    def _decoded(self, asked: TopicSpec, values: list[bytes]) -> list[Any]:
        project = ProjectSpec(Path(), None, {asked.topic: asked}, registry=RegistrySpec(self.url))
        return list(plan(asked, project).decode(pa.array(values, pa.binary())).to_pylist())


def of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def order_class() -> Any:
    """Compile the messages of `ORDER`."""
    with tempfile.TemporaryDirectory() as place:
        Path(place, "order.proto").write_text(ORDER)
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{place}", "--include_imports"]
        subprocess.run([*command, f"--descriptor_set_out={place}/order.desc", "order.proto"], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(Path(place, "order.desc").read_bytes()).file
    return message_factory.GetMessages(files)["shop.Order"]


def ask(url: str) -> dict[str, str]:
    """Return what came of each check: ``ok``, or what was wrong."""
    found = {}
    for name, check in Questions(url).checks().items():
        try:
            check()
            found[name] = "ok"
        except Exception as error:  # somebody else's code: whatever it raises is the result
            found[name] = f"{type(error).__name__}: {error}"[:300]
        print(f"  {name}: {found[name]}")
    return found


@contextmanager
def apicurio(version: str) -> Iterator[str]:
    """Serve Apicurio; give its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    process = subprocess.Popen(
        [str(HERE / "apicurio.sh"), str(port)],
        env=os.environ | {"APICURIO_VERSION": version},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(url, process)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        try:
            if httpx.get(f"{url}/subjects").is_success:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.3)
    raise SystemExit(f"{url} was not served; its exit status is {process.poll()}")


@contextmanager
def magnetar() -> Iterator[str]:
    """Serve a fresh broker's registry; give its address."""
    with tempfile.TemporaryDirectory() as place:
        command = [str(Path(sys.executable).with_name("magnetar")), "standalone", "--data", f"{place}/data"]
        command += ["--kafka", "127.0.0.1:0", "--schema-registry", "127.0.0.1:0"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        words = dict(word.partition("=")[::2] for word in process.stdout.readline().split())
        try:
            yield f"http://{words['schema-registry']}"
        finally:
            process.terminate()
            process.wait(30)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--magnetar", action="store_true", help="a fresh broker's registry")
    parser.add_argument("--apicurio", metavar="VERSION", action="append", default=[], help="from Maven")
    parser.add_argument("--url", action="append", default=[], help="one that runs")
    given = parser.parse_args()
    results: dict[str, dict[str, str]] = {}
    if given.magnetar:
        print("Magnetar")
        with magnetar() as url:
            results["Magnetar"] = ask(url)
    for version in given.apicurio:
        print(f"Apicurio {version}")
        with apicurio(version) as url:
            results[f"Apicurio Registry {version}"] = ask(url)
    for url in given.url:
        print(url)
        results[url] = ask(url)
    if not given.url:
        RESULTS.write_text(json.dumps(results, indent=2) + "\n")
    own = results.get("Magnetar", {})
    return int(any(each != "ok" for each in own.values()))


if __name__ == "__main__":
    sys.exit(main())
