"""Which pieces belong to whole chunked messages: for a compaction such a message lies where its last piece does.

A message is whole once its pieces have come one after the other, from number 0 on; those of others may lie between.
Readers skip a repeated piece, and it goes with its message. A message that begins again under the same uuid, as when a
producer retries, replaces the one that was begun.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.records.opened import MessagePiece

MAX_PIECES = 500_000
"""So many pieces are remembered in one run, some 100 bytes each; with more it ends early, and another follows."""


@dataclass(slots=True)
class _BegunMessage:
    first: MessagePiece
    due: int
    offsets: list[int] = field(default_factory=list)
    """The offsets of all pieces under its uuid, with those of earlier attempts."""


class WholeMessages:
    """The whole messages among the pieces that were noted, in the order of their offsets."""

    def __init__(self) -> None:
        self.orphans: list[tuple[int, MessagePiece]] = []
        """Offsets and pieces that belong to something that began before."""
        self._begun: dict[bytes, _BegunMessage] = {}
        self._uuids: set[bytes] = set()
        """The uuids of all messages that began here."""
        self._ends: dict[int, int] = {}
        self._pieces = 0

    @property
    def is_full(self) -> bool:
        """True if no more pieces should be noted."""
        return self._pieces >= MAX_PIECES

    def note(self, offset: int, piece: MessagePiece) -> bool:
        """Note a piece; return whether its message is whole with it."""
        self._pieces += 1
        begun = self._begun.get(piece.uuid)
        if piece.number == 0:
            self._uuids.add(piece.uuid)
            offsets = [] if begun is None else begun.offsets
            offsets.append(offset)
            self._begun[piece.uuid] = _BegunMessage(piece, 1, offsets)
            return False
        if begun is None:
            self.orphans.append((offset, piece))
            return False
        if begun.first[2:4] != piece[2:4] or piece.number > begun.due:
            del self._begun[piece.uuid]  # a piece is missing, or is another message's
            return False
        begun.offsets.append(offset)
        if piece.number < begun.due:
            return False
        begun.due += 1
        if begun.due < piece.of:
            return False
        for each in begun.offsets:
            self._ends[each] = offset
        del self._begun[piece.uuid]
        return True

    def end_of(self, offset: int) -> int:
        """Return the offset of the last piece of the whole message that an offset belongs to; -1 for none."""
        return self._ends.get(offset, -1)

    def began_anew(self, uuid: bytes) -> bool:
        """Return whether an unfinished message from before has begun again under its uuid."""
        return uuid in self._uuids

    def join(self, before: WholeMessages) -> list[tuple[int, MessagePiece]]:
        """Join earlier pieces to these; return the last pieces of the messages that are whole now."""
        # What was whole among the copies is older than deletions among them that this run has not noted.
        before._ends.clear()
        whole = [(offset, piece) for offset, piece in self.orphans if before.note(offset, piece)]
        self._ends.update(before._ends)
        self.orphans = []
        return whole
