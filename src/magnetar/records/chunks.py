"""Chunks: which pieces make a large message that a Pulsar producer cut, and what a Kafka reader gets at each of them.

A reader gets the whole message at the offset of its last piece, and nothing at the offsets of the others. What becomes
of a piece is decided by the pieces before it alone, so that every reader decides alike, wherever it began:

    the first piece (number 0)              nothing: a message begins, anew if one of this uuid was under way
    the next one of a message under way     nothing, or if it is the last: the whole message
    one that is there already               nothing: its producer sent it again
    any other                               a record of the piece, marked, as `magnetar.records.pulsar_plain` makes it

"Before it" reaches back as far as ``4 * most_bytes`` of stored entries, from the first piece to the last; a message
whose pieces lie further apart, or that is larger than ``most_bytes``, or of more than `MAX_PIECES`, comes in marked
pieces. So does one whose first pieces are gone with retention, and the one begun first where too many are under way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, NamedTuple, TypeVar

from magnetar.records.compression import Buffer
from magnetar.records.entry import decode_entry, kafka_payload_at, payload_at
from magnetar.records.errors import RecordsError
from magnetar.records.mapping import record_of
from magnetar.records.pulsar_compression import decompress_payload
from magnetar.records.pulsar_metadata import MessageMetadata
from magnetar.records.pulsar_plain import UnreadableBatch, foreign_record, metadata_bytes, record_batch

MAX_BYTES = 16 << 20
"""How large a message may be to be put together, unless a setting says otherwise; as stored and as it is inside."""
MAX_PIECES = 1000
_REACH = 4
_MAX_UNDER_WAY = 1000
_MAX_PIECES_UNDER_WAY = 20_000
_MAX_UUID_BYTES = 256
_PIECES_FIELD = b"\xd8\x01"  # the key of ``num_chunks_from_msg``, number 27
Place = TypeVar("Place")


class Chunk(NamedTuple):
    """A piece of a message that may be put together."""

    uuid: bytes
    number: int
    of: int
    size: int
    """Bytes of its payload."""
    message: tuple[int, int, int] = (0, 0, 0)
    """What its producer says of the whole message in each piece: its sequence id, its size, its size uncompressed."""

    def is_like(self, other: Chunk) -> bool:
        """Whether both can be pieces of one message: a uuid may be used again by a producer that was started again."""
        return (self.of, self.message) == (other.of, other.message)


class Gets(Enum):
    """What a reader gets at a piece's offset."""

    NOTHING = auto()
    MARKED = auto()
    WHOLE = auto()
    UNKNOWN = auto()
    """Whoever asks must look further back: `Chunks.looked_back`."""


@dataclass(slots=True)
class _UnderWay(Generic[Place]):
    begins: int
    first: Chunk
    size: int
    places: list[Place] = field(default_factory=list)


class Chunks(Generic[Place]):
    """What a reader knows of the messages under way where it has come to; told of every entry, in order."""

    def __init__(self, most_bytes: int, *, looked_back: bool = False) -> None:
        self.reach = _REACH * most_bytes
        self.looked_back = looked_back
        """Whether all that counts has been seen: ``reach`` bytes, or all there is."""
        self._most_bytes = most_bytes
        self._seen = 0
        self._pieces = 0  # of all that is under way
        self._under_way: dict[bytes, _UnderWay[Place]] = {}

    def __bool__(self) -> bool:
        """Whether a message is under way."""
        return bool(self._under_way)

    def copy(self) -> Chunks[Place]:
        """Return the same knowledge, to go on with apart from this one."""
        new: Chunks[Place] = Chunks(self._most_bytes, looked_back=self.looked_back)
        new._seen, new._pieces = self._seen, self._pieces
        new._under_way = {
            uuid: _UnderWay(each.begins, each.first, each.size, list(each.places))
            for uuid, each in self._under_way.items()
        }
        return new

    def pass_by(self, size: int) -> None:
        """Take note of an entry of ``size`` bytes that is no such piece."""
        self._seen += size
        self.looked_back = self.looked_back or self._seen >= self.reach

    def take(self, piece: Chunk, place: Place, size: int) -> tuple[Gets, list[Place]]:
        """Take note of a piece in an entry of ``size`` bytes; give what its reader gets, and where the whole lies.

        With `Gets.UNKNOWN` no note is taken.
        """
        known = self._under_way.get(piece.uuid)
        if known is None and piece.number and not self.looked_back:
            return Gets.UNKNOWN, []
        begins = self._seen
        self.pass_by(size)
        if piece.number == 0:
            self._begin(piece, place, begins)
            return Gets.NOTHING, []
        if known is None:
            return Gets.MARKED, []
        if self._seen - known.begins > self.reach or not known.first.is_like(piece):
            self._end(piece.uuid)
            return Gets.MARKED, []
        if piece.number < len(known.places):
            return Gets.NOTHING, []
        known.size += piece.size
        if piece.number > len(known.places) or known.size > self._most_bytes:
            self._end(piece.uuid)
            return Gets.MARKED, []
        known.places.append(place)
        self._pieces += 1
        if piece.number < piece.of - 1:
            self._bound()
            return Gets.NOTHING, []
        self._end(piece.uuid)
        return Gets.WHOLE, known.places

    def _begin(self, piece: Chunk, place: Place, begins: int) -> None:
        if piece.uuid in self._under_way:
            self._end(piece.uuid)
        self._under_way[piece.uuid] = _UnderWay(begins, piece, piece.size, [place])
        self._pieces += 1
        self._bound()

    def _bound(self) -> None:
        while len(self._under_way) > _MAX_UNDER_WAY or self._pieces > _MAX_PIECES_UNDER_WAY:
            self._end(next(iter(self._under_way)))

    def _end(self, uuid: bytes) -> None:
        self._pieces -= len(self._under_way.pop(uuid).places)


def piece_of(metadata: MessageMetadata, payload_bytes: int, most_bytes: int) -> Chunk | None:
    """Return the piece that an entry of these metadata is; None if it is none, or none to be put together."""
    m = metadata
    inside = m.uncompressed_size if m.compression else 0
    if (
        not 1 < m.num_chunks_from_msg <= MAX_PIECES
        or not 0 <= m.chunk_id < m.num_chunks_from_msg
        or m.encryption_keys
        or m.batched
        or m.marker_type is not None
        or len(m.uuid) > _MAX_UUID_BYTES
        or max(m.total_chunk_msg_size, inside, payload_bytes) > most_bytes
    ):
        return None
    message = m.sequence_id, m.total_chunk_msg_size, m.uncompressed_size
    return Chunk(m.uuid, m.chunk_id, m.num_chunks_from_msg, payload_bytes, message)


def piece_in(data: Buffer, most_bytes: int) -> Chunk | None:
    """Return the piece that a stored entry is, quickly where it is none."""
    view = memoryview(data)
    try:
        if kafka_payload_at(view) >= 0 or _PIECES_FIELD not in bytes(view[: payload_at(view)]):
            return None
        entry = decode_entry(view)
    except RecordsError:
        return None
    if entry.message.entry_format != "pulsar":
        return None
    return piece_of(entry.message, len(entry.payload), most_bytes)


def nothing(data: Buffer) -> bytes:
    """Return a record batch without records, which keeps the entry's offset."""
    return record_batch(decode_entry(data), 1, [])


def whole(last: Buffer, pieces: Sequence[Buffer]) -> bytes:
    """Return the record batch of a whole message at the offset of its last piece; both are stored entries."""
    entry = decode_entry(last)
    metadata = entry.message
    payload = b"".join([decode_entry(piece).payload for piece in pieces] + [entry.payload])
    try:
        body = decompress_payload(metadata.compression, payload, metadata.uncompressed_size)
        return record_batch(entry, 1, [record_of(metadata, bytes(body), 0, metadata.publish_time)])
    except RecordsError as error:
        record = foreign_record(metadata, metadata_bytes(last), payload, unreadable=str(error))
        made = UnreadableBatch(record_batch(entry, 1, [record]))
        made.why = str(error)
        return made
