"""protoc, which comes with grpcio-tools: ``.proto`` texts to descriptors.

It runs as a process of its own, since it ends its process on some inputs; it is ended with the request it is for.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from magnetar.schema_registry.kinds.imports import CONFLUENT, google_types
from magnetar.schema_registry.work import Work

MAX_NAME_LENGTH = 200
"""Of each part of a file's name: what file systems take."""
_LOOK_S = 0.05


class ProtocFailed(ValueError):
    """protoc is not there, or refuses a text; the message has its words."""


def compile_texts(texts: Mapping[str, str], *wanted: str, work: Work | None = None) -> FileDescriptorSet:
    """Compile the files ``wanted``, by name, of ``texts``, among which they import; all of them if none is named.

    What they import, Google's own files too, comes first in the answer. Raises `ProtocFailed`, and `TooComplex` once
    the time of ``work`` is up.
    """
    try:
        import grpc_tools
    except ImportError:
        raise ProtocFailed("texts need protoc, which comes with grpcio-tools: it is not installed") from None
    # Google's own files lie beside the plug-in.
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    types = google_types()
    with tempfile.TemporaryDirectory() as place:
        for name, text in {**CONFLUENT, **texts}.items():
            _write(Path(place), name, text)
        out = Path(place, ".out.desc")
        command = [
            sys.executable, "-m", "grpc_tools.protoc", f"-I{place}", f"-I{well_known}",
            *(() if types is None else (f"-Igoogle/type={types}",)), "--include_imports",
            f"--descriptor_set_out={out}", *(wanted or texts),
        ]  # fmt: skip
        errors = _run(command, Path(place, ".errors"), work or Work())
        if errors is not None:
            raise ProtocFailed(f"protoc refuses the schema: {errors.replace(f'{place}/', '')}")
        return FileDescriptorSet.FromString(out.read_bytes())


def _write(place: Path, name: str, text: str) -> None:
    """Write a file where only its name leads; raise `ProtocFailed` for a name that is none."""
    parts = name.split("/")
    if not all(_is_part(each) for each in parts) or len(name) > 4 * MAX_NAME_LENGTH:
        raise ProtocFailed(f"a schema's name must be that of a file in its directory: {name[:100]!r}")
    path = place.joinpath(*parts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    except OSError as error:  # one name is a file and a directory to others
        raise ProtocFailed(
            f"a schema's name cannot be that of a file: {name[:100]!r}: {error.strerror}"
        ) from None


def _is_part(part: str) -> bool:
    return 0 < len(part.encode()) <= MAX_NAME_LENGTH and part[0] not in ".-" and part.isprintable()


def _run(command: list[str], told: Path, work: Work) -> str | None:
    """Run protoc; give what it says if it fails. Raises `TooComplex`, and protoc is ended."""
    with told.open("w+b") as errors:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
        try:
            while True:
                try:
                    status = process.wait(_LOOK_S)
                    break
                except subprocess.TimeoutExpired:
                    work.check()
        except BaseException:
            process.kill()
            process.wait()
            raise
        errors.seek(0)
        return errors.read(4096).decode(errors="replace").strip() if status else None
