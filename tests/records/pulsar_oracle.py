"""Pulsar's two metadata messages for Google's own protobuf runtime: what ours are compared with."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_Field = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "uint64": _Field.TYPE_UINT64,
    "uint32": _Field.TYPE_UINT32,
    "int64": _Field.TYPE_INT64,
    "int32": _Field.TYPE_INT32,
    "bool": _Field.TYPE_BOOL,
}
_MESSAGES = {
    "KeyValue": "1 key string!, 2 value string!",
    "EncryptionKeys": "1 key string!, 2 value bytes!, 3 metadata KeyValue*",
    "MessageMetadata": (
        "1 producer_name string!, 2 sequence_id uint64!, 3 publish_time uint64!, 4 properties KeyValue*, "
        "5 replicated_from string, 6 partition_key string, 7 replicate_to string*, 8 compression int32, "
        "9 uncompressed_size uint32, 11 num_messages_in_batch int32, 12 event_time uint64, "
        "13 encryption_keys EncryptionKeys*, 14 encryption_algo string, 15 encryption_param bytes, "
        "16 schema_version bytes, 17 partition_key_b64_encoded bool, 18 ordering_key bytes, "
        "19 deliver_at_time int64, 20 marker_type int32, 22 txnid_least_bits uint64, 23 txnid_most_bits uint64, "
        "24 highest_sequence_id uint64, 25 null_value bool, 26 uuid string, 27 num_chunks_from_msg int32, "
        "28 total_chunk_msg_size int32, 29 chunk_id int32, 30 null_partition_key bool"
    ),
    "SingleMessageMetadata": (
        "1 properties KeyValue*, 2 partition_key string, 3 payload_size int32!, 4 compacted_out bool, "
        "5 event_time uint64, 6 partition_key_b64_encoded bool, 7 ordering_key bytes, 8 sequence_id uint64, "
        "9 null_value bool, 10 null_partition_key bool"
    ),
}


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="oracle.proto", package="oracle", syntax="proto2")
    for name, text in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for part in text.split(", "):
            number, field, kind = part.split()
            label = {"!": _Field.LABEL_REQUIRED, "*": _Field.LABEL_REPEATED}.get(
                kind[-1], _Field.LABEL_OPTIONAL
            )
            kind = kind.rstrip("!*")
            added = message.field.add(name=field, number=int(number), label=label)
            if kind in _KINDS:
                added.type = _KINDS[kind]
            else:
                added.type, added.type_name = _Field.TYPE_MESSAGE, f".oracle.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"oracle.{name}"))
        for name in _MESSAGES
    }


_CLASSES = _classes()
MessageMetadata = _CLASSES["MessageMetadata"]
SingleMessageMetadata = _CLASSES["SingleMessageMetadata"]
