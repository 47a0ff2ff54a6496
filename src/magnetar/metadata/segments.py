"""Names as single segments of metadata paths, byte for byte as Pulsar writes them (its ``Codec``).

That is Java's ``URLEncoder``: letters, digits and ``.-*_`` stay, a space becomes ``+``, and each other byte of UTF-8
``%`` with two hexadecimal digits. Topics, subscriptions and what belongs to them are found again under these names.
"""

from __future__ import annotations

from urllib.parse import quote_plus, unquote_plus


def encoded(name: str) -> str:
    """Return a name as one segment of a path."""
    return quote_plus(name, safe="*").replace("~", "%7E")


def decoded(segment: str) -> str:
    """Return the name that a segment was made of."""
    return unquote_plus(segment)


def is_whole(segment: str) -> bool:
    """Whether a segment is what its name is encoded as: otherwise it is not found again by the name."""
    return encoded(decoded(segment)) == segment
