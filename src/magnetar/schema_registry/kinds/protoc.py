"""protoc, which comes with grpcio-tools: ``.proto`` texts to descriptors.

It runs as a process of its own, since it ends its process on some inputs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

TIMEOUT_S = 60


class ProtocFailed(ValueError):
    """protoc is not there, or refuses a text; the message has its words."""


def compile_texts(texts: Mapping[str, str], *wanted: str) -> FileDescriptorSet:
    """Compile the files ``wanted``, by name, of ``texts``, among which they import; all of them if none is named.

    What they import, Google's own files too, comes first in the answer. Raises `ProtocFailed`.
    """
    try:
        import grpc_tools
    except ImportError:
        raise ProtocFailed("texts need protoc, which comes with grpcio-tools: it is not installed") from None
    # Google's own files lie beside the plug-in.
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as place:
        for name, text in texts.items():
            path = Path(place, name).resolve()
            if not path.is_relative_to(Path(place).resolve()):
                raise ProtocFailed(f"a schema's name leads out of its directory: {name!r}")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        out = Path(place, ".out.desc")
        done = subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", f"-I{place}", f"-I{well_known}", "--include_imports",
             f"--descriptor_set_out={out}", *(wanted or texts)],
            capture_output=True, text=True, check=False, timeout=TIMEOUT_S,
        )  # fmt: skip
        if done.returncode:
            raise ProtocFailed(f"protoc refuses the schema: {done.stderr.strip()}")
        return FileDescriptorSet.FromString(out.read_bytes())
