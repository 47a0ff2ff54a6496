"""What can be wrong with bytes at rest or on their way in. Storage and protocols translate these once."""

from __future__ import annotations


class RecordsError(Exception):
    """The root of all that this package raises about bytes it was given."""


class CorruptBatch(RecordsError):
    """A record batch is cut short, or its CRC does not match."""


class InvalidRecord(RecordsError):
    """A batch is whole, but what it holds contradicts itself or the rules for producers."""


class TooMuchInside(InvalidRecord):
    """A few bytes would become more than is allowed when decompressed."""


class UnsupportedCompression(RecordsError):
    """The compression codec is unknown, or not allowed here."""


class EntryCorrupt(RecordsError):
    """An entry's own framing or metadata cannot be read."""
