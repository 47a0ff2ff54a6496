"""Share sessions (KIP-932): a member names its partitions once, and its requests are numbered.

A session ends with the connection on which it began: what the member holds is free again at once, not when its locks
end. Its requests may come on any: a client acknowledges on one of its own while records are waited for on another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from magnetar.coordination.refused import CoordinatorRefused
from magnetar.serving.memory import Account
from magnetar.wire.kafka.errors import ErrorCode

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 0x7FFFFFFF
ROW_BYTES = 300
"""What a partition takes in a session, about."""
MAX_ROWS = 10_000
"""Most partitions of one session: it is gone through at each fetch."""
_MAX_OF_ONE = 16
"""Sessions of a connection; members of one client that share it are few."""


class SharedPartition(NamedTuple):
    """A partition that a session follows."""

    topic_id: bytes
    partition: int


class SessionKey(NamedTuple):
    """Whose session it is."""

    group_id: str
    member_id: str


def check_rows(topics: Sequence[Any]) -> int:
    """Raise `CoordinatorRefused` for more rows than a session has partitions, before anything is done with them; return
    how many they are."""
    rows = len(topics) if len(topics) > MAX_ROWS else sum(len(topic.partitions) for topic in topics)
    if rows > MAX_ROWS:
        raise CoordinatorRefused(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
    return rows


def check_member(group_id: str | None, member_id: str | None) -> None:
    """Raise `CoordinatorRefused` unless both have names; one with a NUL is the broker's own."""
    if not group_id or not member_id:
        raise CoordinatorRefused(ErrorCode.INVALID_REQUEST, "Group id and member id must be given.")
    if "\0" in member_id:
        raise CoordinatorRefused(ErrorCode.INVALID_REQUEST, "Member id must not hold a NUL.")


class ShareSession:
    """What one member follows, in the order in which it gets its turns."""

    __slots__ = ("deserted", "epoch", "key", "on_deserted", "owner", "partitions")

    def __init__(self, key: SessionKey, owner: Account | None) -> None:
        self.key = key
        self.owner = owner
        self.epoch = 1
        """That of the next request."""
        self.partitions: dict[SharedPartition, None] = {}
        self.deserted = False
        """Whether nobody listens any more: nothing is to be given to its member."""
        self.on_deserted: list[Callable[[], None]] = []

    def turn(self, served: Iterable[SharedPartition]) -> None:
        """Let those that had something to give come last next time."""
        for each in served:
            if each in self.partitions:
                del self.partitions[each]
                self.partitions[each] = None

    def desert(self) -> None:
        """Tell whoever waits for something to give that nobody wants it."""
        self.deserted = True
        for told in self.on_deserted[:]:
            told()


class ShareSessions:
    """All sessions of a broker; methods raise `CoordinatorRefused`."""

    def __init__(
        self, most: Callable[[], int], account: Account, ended: Callable[[ShareSession], None]
    ) -> None:
        """``ended`` is called with a session that has ended, however."""
        self._most = most
        self._account = account
        self._ended = ended
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._of: dict[Account | None, list[ShareSession]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def of_group(self, group_id: str) -> list[ShareSession]:
        """Return the sessions of one group's members."""
        return [session for key, session in self._sessions.items() if key.group_id == group_id]

    def begin(self, key: SessionKey, owner: Account | None) -> ShareSession:
        """Return a new session, in place of the member's last one."""
        if owner is not None and owner.is_orphan:
            # Nobody hears it, nor would the session ever end.
            raise CoordinatorRefused(ErrorCode.SHARE_SESSION_NOT_FOUND)
        old = self._sessions.get(key)
        if old is not None:
            self.end(old)
        own = self._of.get(owner, [])
        if len(self._sessions) >= self._most() or (owner is not None and len(own) >= _MAX_OF_ONE):
            raise CoordinatorRefused(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[key] = ShareSession(key, owner)
        self._of.setdefault(owner, []).append(session)
        return session

    def go_on(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session of a numbered request, or of the last one."""
        session = self._sessions.get(key)
        if session is None:
            raise CoordinatorRefused(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                raise CoordinatorRefused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
            session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        return session

    def add(self, session: ShareSession, partitions: Iterable[SharedPartition]) -> list[SharedPartition]:
        """Have a session follow partitions, and return those that it did not; refused if they are too many."""
        # A request may name one twice; it is one row, when it is counted as when the session ends.
        added = [each for each in dict.fromkeys(partitions) if each not in session.partitions]
        if len(session.partitions) + len(added) > MAX_ROWS:
            raise CoordinatorRefused(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session.partitions.update(dict.fromkeys(added))
        self._account.charge(len(added) * ROW_BYTES)
        return added

    def drop(self, session: ShareSession, partitions: Iterable[SharedPartition]) -> list[SharedPartition]:
        """Have a session follow partitions no more, and return those that it did."""
        dropped = [each for each in partitions if session.partitions.pop(each, each) is None]
        self._account.charge(-len(dropped) * ROW_BYTES)
        return dropped

    def end(self, session: ShareSession) -> None:
        """End a session."""
        if self._sessions.get(session.key) is not session:
            return
        del self._sessions[session.key]
        own = self._of[session.owner]
        own.remove(session)
        if not own:
            del self._of[session.owner]
        self._account.charge(-len(session.partitions) * ROW_BYTES)
        session.desert()
        self._ended(session)

    def desert(self, owner: Account) -> None:
        """Nobody listens to a connection's answers any more, though requests may still come."""
        for session in self._of.get(owner, ()):
            session.desert()

    def forget(self, owner: Account) -> None:
        """A connection has ended: so have its sessions."""
        for session in list(self._of.get(owner, ())):
            self.end(session)
