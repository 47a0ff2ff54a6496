"""The records of ``__consumer_offsets``, as Kafka 4.x writes them.

    key    int16 version: 0 and 1 a committed offset, 2 a classic group; then the key's fields
    value  int16 version, then the value's fields; a record without value says that the key is gone

Offsets are written with value version 4 (it carries the topic's id), those with a time to expire, which only old
clients request, with version 1; groups with version 3. All versions are read. Other keys belong to kinds of groups
that are not stored here, and are skipped.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from magnetar.coordination.decision import Fact
from magnetar.wire.kafka.message import Message
from magnetar.wire.kafka.messages.group_metadata_key import GroupMetadataKey
from magnetar.wire.kafka.messages.group_metadata_value import GroupMetadataValue
from magnetar.wire.kafka.messages.offset_commit_key import OffsetCommitKey
from magnetar.wire.kafka.messages.offset_commit_value import OffsetCommitValue
from magnetar.wire.kafka.primitives import ZERO_UUID

NO_TIMESTAMP = -1

_OFFSET_KEYS = (b"\0\0", b"\0\1")
_OFFSET_KEY = b"\0\1"
_GROUP_KEY = b"\0\2"
_OFFSET_VALUE = 4
_EXPIRING_OFFSET_VALUE = 1
_GROUP_VALUE = 3
_SHORT = 126
"""Shorter texts have one byte of length."""
_OFFSET_HEAD = Struct(">hqiB")
"""Version, offset, leader epoch, length of the metadata and one."""
_OFFSET_TAIL = Struct(">qBBB16s")
"""Commit timestamp; one tagged field: number 0, 16 bytes, the topic's id."""
_PLAIN_OFFSET = Struct(">hqiBq3s16s")
"""Both, without metadata between them."""
_TOPIC_ID_TAG = b"\1\0\20"
_ANY_PARTITION = bytes(4)
_REMEMBERED = 128
"""How many names to cache: they are up to 32 KB long, so it is only worth it for those of one commit."""


MOVED_BY_PULSAR = "moved by Pulsar"
"""The metadata of an offset that consumers of a linked subscription, or Pulsar tools, committed."""


class Committed(NamedTuple):
    """A committed offset of a group for one partition; timestamps in ms, -1 for none."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int = NO_TIMESTAMP
    expire_timestamp: int = NO_TIMESTAMP
    topic_id: bytes = ZERO_UUID


class Committer(NamedTuple):
    """The committer: a member of a generation, or (-1, no member) a client that assigns its own partitions."""

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    """Or the member's epoch (KIP-848)."""
    retention_ms: int = -1
    """How long to retain the offsets, which clients before 2.1 may set; -1 as configured."""
    is_broker: bool = False
    """Whether it is the broker itself, for a subscription that shares the group's progress: no generation binds it."""


class OffsetCommit(NamedTuple):
    """One offset to be committed."""

    topic: str
    topic_id: bytes
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class OffsetFact(NamedTuple):
    """A group's offset of a partition was committed, or (None) is gone."""

    group_id: str
    topic: str
    partition: int
    committed: Committed | None


class GroupFact(NamedTuple):
    """The new state of a group, or (None) its end."""

    group_id: str
    value: GroupMetadataValue | None


def offset_fact(group_id: str, topic: str, partition: int, committed: Committed | None) -> Fact:
    """Return the record of a commit, or of its end."""
    key = b"".join((_OFFSET_KEY, _text(group_id), _text(topic), partition.to_bytes(4, "big")))
    return Fact(key, None if committed is None else _offset_value(committed))


def _text(value: str) -> bytes:
    data = value.encode()
    return len(data).to_bytes(2, "big", signed=True) + data


def _offset_value(committed: Committed) -> bytes:
    """Return the value; most are packed right here, as a client may commit a thousand partitions in one request."""
    metadata = committed.metadata.encode()
    if committed.expire_timestamp == NO_TIMESTAMP and len(metadata) < _SHORT and any(committed.topic_id):
        return b"".join(
            (
                _OFFSET_HEAD.pack(_OFFSET_VALUE, committed.offset, committed.leader_epoch, len(metadata) + 1),
                metadata,
                _OFFSET_TAIL.pack(committed.commit_timestamp, 1, 0, 16, committed.topic_id),
            )
        )
    return _other_offset_value(committed)


def _other_offset_value(committed: Committed) -> bytes:
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp,
    )
    if committed.expire_timestamp != NO_TIMESTAMP:
        value.expire_timestamp = committed.expire_timestamp
        return _versioned(value, _EXPIRING_OFFSET_VALUE)
    value.topic_id = committed.topic_id
    return _versioned(value, _OFFSET_VALUE)


def group_fact(group_id: str, value: GroupMetadataValue | None) -> Fact:
    """Return the record of a group as it is now, or of its end."""
    key = _GROUP_KEY + GroupMetadataKey(group=group_id).encode(0)
    return Fact(key, None if value is None else _versioned(value, _GROUP_VALUE))


def _versioned(value: Message, version: int) -> bytes:
    return version.to_bytes(2, "big") + value.encode(version)


def read_fact(key: bytes, value: bytes | None) -> OffsetFact | GroupFact | None:
    """Return the content of a record, None for another kind of group; raise ``WireError`` for damaged ones."""
    kind = key[:2]
    if kind in _OFFSET_KEYS:
        committed = None if value is None else _read_offset(value)
        whose = _whose(key[:-4])
        if whose is not None:
            return OffsetFact(*whose, int.from_bytes(key[-4:], "big", signed=True), committed)
        name = OffsetCommitKey.decode(key[2:], 0)
        return OffsetFact(name.group, name.topic, name.partition, committed)
    if kind == _GROUP_KEY:
        group_id = GroupMetadataKey.decode(key[2:], 0).group
        if value is None:
            return GroupFact(group_id, None)
        return GroupFact(group_id, GroupMetadataValue.decode(value[2:], _version(value)))
    return None


@lru_cache(_REMEMBERED)
def _whose(key: bytes) -> tuple[str, str] | None:
    """Return group and topic of an offset's key without its partition, or None if more follows than that.

    One commit has many of these in a row.
    """
    fields = key[2:] + _ANY_PARTITION
    name = OffsetCommitKey.decode(fields, 0)
    return (name.group, name.topic) if name.encode(0) == fields else None


@lru_cache(_REMEMBERED)
def _one(topic_id: bytes) -> bytes:
    """Return the same object for the same id: a million offsets need not hold a million of them."""
    return topic_id


def _read_offset(value: bytes) -> Committed:
    """Return the committed offset; most values have no metadata, and the layout of `_offset_value`."""
    if len(value) == _PLAIN_OFFSET.size:
        version, offset, leader_epoch, length, timestamp, tag, topic_id = _PLAIN_OFFSET.unpack(value)
        if version == _OFFSET_VALUE and length == 1 and tag == _TOPIC_ID_TAG:
            return Committed(offset, leader_epoch, "", timestamp, NO_TIMESTAMP, _one(topic_id))
    return _read_other_offset(value)


def _read_other_offset(value: bytes) -> Committed:
    stored = OffsetCommitValue.decode(value[2:], _version(value))
    return Committed(
        stored.offset,
        stored.leader_epoch,
        stored.metadata,
        stored.commit_timestamp,
        stored.expire_timestamp,
        stored.topic_id,
    )


def _version(value: bytes) -> int:
    return int.from_bytes(value[:2], "big", signed=True)
