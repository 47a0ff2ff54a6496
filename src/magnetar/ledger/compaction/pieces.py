"""Which pieces of chunked messages are of whole ones: for a compaction such a message lies where its last piece does.

A message is whole once its pieces have come one after the other, from number 0 on; those of others may lie between.
A piece that comes again is passed over by readers, and goes with its message. What begins anew under the same uuid, as
producers do that send once more, takes the place of what was begun.
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
    """Of all pieces under its uuid, those that were begun anew included."""


class WholeMessages:
    """Those among the pieces that it was told of, in the order of their offsets."""

    def __init__(self) -> None:
        self.orphans: list[tuple[int, MessagePiece]] = []
        """Offsets and pieces that belong to something that began before."""
        self._begun: dict[bytes, _BegunMessage] = {}
        self._uuids: set[bytes] = set()
        """Of all that began here."""
        self._ends: dict[int, int] = {}
        self._pieces = 0

    @property
    def is_full(self) -> bool:
        """Whether no more pieces should be noted."""
        return self._pieces >= MAX_PIECES

    def note(self, offset: int, piece: MessagePiece) -> bool:
        """Take note of a piece; tell whether its message is whole with it."""
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
        """Return where the last piece of the whole message lies that the piece at an offset is of; -1 for none."""
        return self._ends.get(offset, -1)

    def began_anew(self, uuid: bytes) -> bool:
        """Return whether what began before under a uuid, and is not whole, has begun anew."""
        return uuid in self._uuids

    def join(self, before: WholeMessages) -> list[tuple[int, MessagePiece]]:
        """Take over what began before; return the last pieces of the messages that are whole by it."""
        # What was whole among the copies is older than deletions among them that this run has not noted.
        before._ends.clear()
        whole = [(offset, piece) for offset, piece in self.orphans if before.note(offset, piece)]
        self._ends.update(before._ends)
        self.orphans = []
        return whole
