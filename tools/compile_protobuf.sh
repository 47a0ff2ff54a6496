#!/usr/bin/env bash
# Make pulsar_pb2.py and pulsar_pb2.pyi from pulsar.proto. The compiler is as old as the oldest protobuf that
# pyproject.toml allows: newer code would refuse to run with it.
set -euo pipefail
cd "$(dirname "$0")/.."
tools="$(mktemp -d)"
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools"
"$tools/bin/pip" install -q 'grpcio-tools==1.70.0'
wire=src/magnetar/wire/pulsar
"$tools/bin/python" -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src "$wire/pulsar.proto"
# An enum of Pulsar's has a value None, which Python has no name for.
sed -i -E '/^ +None: /d' "$wire/pulsar_pb2.pyi"
