"""Text of strangers for terminals and logs: names of groups and transactional ids may be anything that UTF-8 can say.

What would move a terminal's cursor, set its title, begin a line or turn the order of letters around is shown as Python
and JSON write it: ``\\x1b``, ``\\u202e``. All else stays as it is.
"""

from __future__ import annotations

import re

_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks of direction, embeddings, overrides, isolates
    "\u2028\u2029\ufff9-\ufffb\ud800-\udfff]"  # ends of lines and paragraphs, annotations, halves of pairs
)
_BETWEEN_LINES = frozenset("\n\t")


def printable(text: str) -> str:
    """Return one line of text, with ``\\n`` where it had several."""
    return _UNSEEN.sub(lambda found: _shown(found[0]), text)


def printable_lines(text: str) -> str:
    """Return text that may have several lines, and tabs in them."""
    return _UNSEEN.sub(lambda found: found[0] if found[0] in _BETWEEN_LINES else _shown(found[0]), text)


def printable_json(text: str) -> str:
    """Return JSON that says the same: in it such characters stand in strings alone, where JSON has words for them.

    Ends of lines and tabs between its values stay.
    """
    return _UNSEEN.sub(
        lambda found: found[0] if found[0] in _BETWEEN_LINES else f"\\u{ord(found[0]):04x}", text
    )


def _shown(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
