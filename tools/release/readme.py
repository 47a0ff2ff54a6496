"""The README as a package index shows it, without the files next to it."""

from __future__ import annotations

import re

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#|mailto:)([^)\s]+)\)")


def absolute(text: str, repository: str, tag: str) -> str:
    """Return it with links to files of the tree as it is at ``tag``; without a ``repository`` the words alone stay."""

    def link(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        if not repository:
            return "" if mark else words
        kind = "raw" if mark else "blob"
        return f"{mark}[{words}]({repository.rstrip('/')}/{kind}/{tag}/{target})"

    return _LINK.sub(link, text)
