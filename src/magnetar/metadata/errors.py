"""What a metadata store may say instead of an answer."""

from __future__ import annotations


class MetadataError(Exception):
    """The root of all that this package raises."""


class InvalidPath(MetadataError):
    """A path must be absolute, without empty segments and without a slash at its end."""


class NotFound(MetadataError):
    """Nothing is stored under the path."""

    def __init__(self, path: str) -> None:
        super().__init__(f"nothing is stored at {path}")
        self.path = path


class BadVersion(MetadataError):
    """Someone else changed the value first; ``actual`` is -1 when there is none."""

    def __init__(self, path: str, expected: int, actual: int) -> None:
        super().__init__(f"{path} is at version {actual}, not {expected}")
        self.path = path
        self.expected = expected
        self.actual = actual


class MetadataCorrupt(MetadataError):
    """What is stored is not what was written. ``path`` is the damaged node, or the file when no node can be named."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"metadata is damaged at {path}: {why}")
        self.path = path


class RowsMismatch(MetadataCorrupt):
    """Every row is whole, but together they are not those of the last commit: some may be missing, or too many."""


class MetadataUnavailable(MetadataError):
    """The disk refuses (full, read-only, I/O error); nothing was changed, and a later try may succeed."""


class DirectoryInUse(MetadataError):
    """Another live process owns the data directory; ``pid`` is its process id, 0 when it did not say."""

    def __init__(self, directory: str, pid: int) -> None:
        owner = f"process {pid}" if pid else "another process"
        super().__init__(f"{directory} is in use by {owner}; two brokers must never open one data directory")
        self.directory = directory
        self.pid = pid
