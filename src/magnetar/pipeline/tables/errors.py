"""What can stand between a topic and its table."""

from __future__ import annotations


class TableError(Exception):
    """A table that cannot be opened, read or written as asked; the message names it."""


class TableConflict(TableError):
    """Another writer was faster, or is at work: nothing of this commit is in the table."""


class CommitUnknown(TableError):
    """The catalog did not say whether it made this commit. What was written stays: it may be in the table, or come."""


class TopicReplaced(TableError):
    """The table holds another topic of that name: the one it followed was deleted and made anew."""


class OffsetsCommitted(TableConflict):
    """The table already holds some of the offsets of this commit."""
