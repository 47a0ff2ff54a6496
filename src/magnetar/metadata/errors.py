"""What a metadata store may say instead of an answer."""

from __future__ import annotations


class MetadataError(Exception):
    """The root of all that this package raises."""


class InvalidPath(MetadataError):
    """A path must be absolute, without empty segments and without a slash at its end."""


class TooLarge(MetadataError):
    """A commit holds more bytes than every store can take (``MAX_COMMIT_BYTES``); nothing was changed."""

    def __init__(self, size: int, path: str) -> None:
        super().__init__(f"a commit of {size} bytes that begins at {path} is larger than stores take")
        self.size = size
        self.path = path


class BadVersion(MetadataError):
    """Somebody else changed the value first; nothing was changed.

    ``actual`` is the version that is there, -1 when nothing is; a store that does not know it says None.
    """

    def __init__(self, path: str, expected: int, actual: int | None) -> None:
        super().__init__(f"{path} is at version {actual}, not {expected}")
        self.path = path
        self.expected = expected
        self.actual = actual


class NotFound(BadVersion):
    """Nothing is stored under the path, and something was expected there; nothing was changed."""

    def __init__(self, path: str, expected: int = 0) -> None:
        super().__init__(path, expected, -1)
        self.args = (f"nothing is stored at {path}",)


class NotEmpty(MetadataError):
    """A node cannot be deleted before all nodes beneath it; nothing was changed."""

    def __init__(self, path: str, child: str) -> None:
        super().__init__(f"{path} cannot be deleted: {child} is beneath it")
        self.path = path


class ParentIsEphemeral(MetadataError):
    """Nothing can be stored beneath a node that ends with a session; nothing was changed."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} cannot be stored: the node above it ends with a session")
        self.path = path


class MetadataCorrupt(MetadataError):
    """What is stored is not what was written. ``path`` is the damaged node, or the file when no node can be named."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"metadata is damaged at {path}: {why}")
        self.path = path


class RowsMismatch(MetadataCorrupt):
    """Every row is whole, but together they are not those of the last commit: some may be missing, or too many."""


class MetadataFailed(MetadataError):
    """The store could not do what it was asked; its subclasses tell what is known of a commit."""


class MetadataUnavailable(MetadataFailed):
    """The store cannot be reached, or its disk refuses; nothing was changed, and a later try may succeed."""


class MetadataUnreachable(MetadataUnavailable):
    """Nothing answers as the store where it is said to be; ``next_step`` is what to do about it."""

    def __init__(self, words: str, next_step: str) -> None:
        super().__init__(words)
        self.next_step = next_step


class MetadataFull(MetadataUnavailable):
    """The store has no room left; nothing was changed."""


class MetadataUncertain(MetadataFailed):
    """Whether the commit was kept is not known: the answer was lost, or the disk failed in the midst of it.

    Read before trying again: a commit with expected versions tells by itself, when it is tried again, whether it
    was the one that changed them.
    """


class DirectoryInUse(MetadataError):
    """Another live process owns the data directory; ``pid`` is its process id, 0 when it did not say."""

    def __init__(self, directory: str, pid: int) -> None:
        owner = f"process {pid}" if pid else "another process"
        super().__init__(f"{directory} is in use by {owner}; two brokers must never open one data directory")
        self.directory = directory
        self.pid = pid
