"""Topics as groups see them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, Protocol

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.wire.kafka.errors import ErrorCode

if TYPE_CHECKING:
    import re2

MAX_REGEX_CHARS = 1000
_MAX_STEPS = 1000
"""The limit of an expression's program: a name costs at most its length times as many steps."""
_MAX_BYTES = 128 << 10
Shows = Callable[[str], bool]
"""Whether the client may know of a topic of that name."""


class SeenTopic(NamedTuple):
    """One topic as an assignor sees it."""

    topic_id: bytes
    partitions: int


class Topics(Protocol):
    """All topics, as of now."""

    @property
    def version(self) -> int:
        """Grows whenever a topic comes, goes or changes."""
        ...

    def find(self, name: str) -> SeenTopic | None:
        """Return the topic of that name, if there is one."""
        ...

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, if it is there."""
        ...

    def meant(self, written: str) -> str:
        """Return the name of a topic from the form that a client of these groups writes."""
        ...

    def written(self, name: str) -> str:
        """Return how a client of these groups writes a topic's name."""
        ...

    def named(self) -> AsyncIterator[tuple[str, str]]:
        """Yield each topic's name, and how a client of these groups writes it; the event loop gets turns meanwhile."""
        ...


class NoTopics:
    """There are no topics."""

    version = 0

    def find(self, name: str) -> SeenTopic | None:
        """Return None."""
        return None

    def name_of(self, topic_id: bytes) -> str | None:
        """Return None."""
        return None

    def meant(self, written: str) -> str:
        """Return the same."""
        return written

    def written(self, name: str) -> str:
        """Return the same."""
        return name

    async def named(self) -> AsyncIterator[tuple[str, str]]:
        """Return nothing."""
        return
        yield


def hash_of(topics: Topics, names: Iterable[str]) -> int:
    """Return a signed 64-bit number that changes with the ids and sizes of these topics; 0 without topics."""
    digest = blake2b(digest_size=8)
    empty = True
    for name in sorted(names):
        found = topics.find(name)
        if found is not None:
            empty = False
            digest.update(found.topic_id + found.partitions.to_bytes(4, "big"))
    return 0 if empty else int.from_bytes(digest.digest(), "big", signed=True) or 1


@lru_cache(maxsize=128)
def compiled(text: str) -> re2._Regexp:
    """Return a subscription's expression (RE2/J's syntax, as in Kafka); raise `CoordinatorRefused`."""
    import re2  # 3 MB that a broker without such subscriptions goes without

    options = re2.Options()
    options.max_mem = _MAX_BYTES
    options.log_errors = False
    if len(text) > MAX_REGEX_CHARS:
        raise CoordinatorRefused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"The regular expression has over {MAX_REGEX_CHARS} characters.",
        )
    try:
        found = re2.compile(text, options)
    except (re2.error, UnicodeEncodeError):
        raise CoordinatorRefused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{text}` is not a valid regular expression.",
        ) from None
    if found.programsize > _MAX_STEPS:
        raise CoordinatorRefused(ErrorCode.INVALID_REGULAR_EXPRESSION, "The regular expression is too large.")
    return found


async def resolve(topics: Topics, regexes: Iterable[str], shows: Shows | None) -> dict[str, frozenset[str]]:
    """Return the topics that each expression matches, among those that the client may see."""
    programs = {text: compiled(text) for text in regexes}
    found: dict[str, set[str]] = {text: set() for text in programs}
    async for name, spelled in topics.named():
        for text, program in programs.items():
            if program.fullmatch(spelled) is not None and (shows is None or shows(name)):
                found[text].add(name)
    return {text: frozenset(names) for text, names in found.items()}
