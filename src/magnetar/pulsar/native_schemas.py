"""PROTOBUF_NATIVE schemas: a set of descriptors in JSON, and which message of them is meant."""

from __future__ import annotations

import base64
import json

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError


def root_message(data: bytes) -> str:
    """Return the full name of the message that a definition is about; raise ``ValueError`` for what is none.

    The definition is what Pulsar's clients write: ``{"fileDescriptorSet": base64, "rootMessageTypeName": ...,
    "rootFileDescriptorName": ...}``. The descriptors must hold together, and all that they import be among them.
    """
    try:
        content = json.loads(data)
        encoded, root, name = (
            content[key] for key in ("fileDescriptorSet", "rootMessageTypeName", "rootFileDescriptorName")
        )
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(encoded))
    except (ValueError, KeyError, TypeError, DecodeError, RecursionError) as error:
        raise ValueError(f"deserialize ProtobufNative Schema failed: {error!r}") from None
    pool = DescriptorPool()
    try:
        for each in _in_order(files):
            pool.Add(each)
        file = pool.FindFileByName(name)
        message = pool.FindMessageTypeByName(root)
    except (TypeError, KeyError, UnicodeError) as error:
        raise ValueError(
            f"protobuf root message descriptor is null , please recheck rootMessageTypeName or "
            f"rootFileDescriptorName conf. {error}"
        ) from None
    if message.file.name != file.name:
        raise ValueError(f"{root} is not in {name}")
    return str(message.full_name)


def _in_order(files: descriptor_pb2.FileDescriptorSet) -> list[descriptor_pb2.FileDescriptorProto]:
    """Return files behind those that they import; raise ``KeyError`` where one is missing."""
    known = {each.name: each for each in files.file}
    ordered: dict[str, descriptor_pb2.FileDescriptorProto] = {}
    waiting = [(name, False) for name in reversed(known)]
    opened: set[str] = set()
    while waiting:
        name, is_left = waiting.pop()
        if is_left:
            ordered[name] = known[name]
        elif name not in opened:
            opened.add(name)
            waiting.append((name, True))
            waiting += [(each, False) for each in known[name].dependency]
    return list(ordered.values())
