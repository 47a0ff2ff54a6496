"""Names of topics and groups replaced by numbers: the same one everywhere in a bundle, so that files fit together.

Known are those of the inventory, and what labels of figures say. In sentences they are found as whole words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_LABEL = re.compile(
    r'\b(topic|topic_name|partition|consumergroup|group|group_id|subscription)="((?:[^"\\]|\\.)*)"'
)
_WORD = re.compile(r"[A-Za-z0-9._-]+")
_PARTITION = re.compile(r"(?:-partition)?-\d+$")
_ESCAPE = re.compile(r"\\(.)")
_PLAIN = re.compile(r"[A-Za-z0-9._-]*[A-Za-z0-9_-]")
_TOPIC, _GROUP = "topic", "group"
_KINDS = {"topic": _TOPIC, "topic_name": _TOPIC, "partition": _TOPIC}


class HiddenNames:
    """Numbers instead of names. Names that begin with two underscores are the broker's own, and stay."""

    def __init__(self, topics: Iterable[str], groups: Iterable[str]) -> None:
        self._words: dict[str, str] = {}
        self._odd: dict[str, str] = {}
        """Names with characters that words do not have."""
        self._counts = {_TOPIC: 0, _GROUP: 0}
        for kind, names in ((_TOPIC, topics), (_GROUP, groups)):
            for name in names:
                self._of(kind, name)

    def _of(self, kind: str, name: str) -> str:
        known = self._words.get(name) or self._odd.get(name)
        if known is not None:
            return known
        if not name or name.startswith("__"):
            return name
        self._counts[kind] += 1
        made = f"{kind}-{self._counts[kind]}"
        (self._words if _PLAIN.fullmatch(name) else self._odd)[name] = made
        return made

    def figures(self, line: str) -> str:
        """Return a line of metrics: names are what their labels hold."""
        return line if line.startswith("#") else _LABEL.sub(self._label, line)

    def _label(self, found: re.Match[str]) -> str:
        label, value = found[1], _ESCAPE.sub(r"\1", found[2])
        if label == "partition" and value.lstrip("-").isdigit():
            return found[0]
        if _KINDS.get(label, _GROUP) is _GROUP:
            return f'{label}="{self._of(_GROUP, value)}"'
        path, slash, name = value.rpartition("/")
        end = _PARTITION.search(name) if slash or label == "partition" else None
        bare, number = (name, "") if end is None else (name[: end.start()], end[0])
        return f'{label}="{path}{slash}{self._of(_TOPIC, bare)}{number}"'

    def text(self, text: str) -> str:
        """Return a sentence without the names that are known."""
        for name, number in self._odd.items():
            if name in text:
                text = text.replace(name, number)
        return _WORD.sub(self._word, text)

    def _word(self, found: re.Match[str]) -> str:
        word = found[0]
        bare = word.rstrip(".")
        for end in (None, _PARTITION.search(bare)):
            name = bare if end is None else bare[: end.start()]
            if name in self._words:
                return self._words[name] + word[len(name) :]
        return word
