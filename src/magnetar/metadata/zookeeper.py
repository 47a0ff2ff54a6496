"""A metadata store in Apache ZooKeeper: what brokers of a cluster share, at Pulsar's own paths.

Every commit is one ``multi`` of ZooKeeper's, with exact versions. Most can be written down at once: each operation says
which version it expects. What cannot (`ANY`, "must not exist" as a check, missing parents), and what ZooKeeper refuses,
is looked at first: the nodes are read, the port's rules are tried on them, and what comes of it is sent with the
versions that were read, again and again while others are quicker. So what is refused is refused in the port's words.

Paths lie below a *root* (the path of a ``zk:host:port/path``), which is made when the store is opened.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from kazoo.exceptions import (
    BadArgumentsError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.protocol.serialization import (
    CheckVersion,
    Create,
    Exists,
    GetChildren,
    GetData,
    SetData,
    Transaction,
)
from kazoo.protocol.serialization import Delete as DeleteNode
from kazoo.security import OPEN_ACL_UNSAFE

from magnetar.metadata.errors import (
    InvalidPath,
    MetadataError,
    MetadataFull,
    MetadataUnavailable,
    MetadataUncertain,
)
from magnetar.metadata.local import LocalWatch
from magnetar.metadata.ops import (
    ANY,
    MUST_NOT_EXIST,
    Check,
    Delete,
    Op,
    Put,
    Stored,
    below,
    check_ops,
    check_path,
)
from magnetar.metadata.port import MetadataStore, Watch
from magnetar.metadata.staging import Node, StagedCommit, Staging
from magnetar.metadata.zookeeper_requests import GetMany
from magnetar.metadata.zookeeper_security import ZooKeeperSecurity
from magnetar.metadata.zookeeper_session import AddWatch, QuotaExceeded, RemoveWatch, ZooKeeperSession

SESSION_SECONDS = 30.0
"""How long ZooKeeper keeps a session of which it hears nothing, as Pulsar has it."""
_EPHEMERAL = 1
_TRIES = 200  # of a commit that others are quicker than
_AT_ONCE = 1000  # nodes of a tree
_WITH_ONE_REQUEST = 16  # nodes that are read together; each may have a megabyte
_GONE = (ConnectionLoss, SessionExpiredError)  # while it was asked
_log = logging.getLogger(__name__)
T = TypeVar("T")


class _Known(NamedTuple):
    """Nodes as they were read: those that are there, and the paths of what lies right beneath those to delete."""

    nodes: Mapping[str, Node]
    beneath: Mapping[str, Sequence[str]]


class ZooKeeperStore(MetadataStore):
    """One client of a cluster's metadata. Made by `open`.

    It connects anew by itself. What is read waits for that, for as long as a session lasts, and is asked for again; a
    commit whose answer was lost with the connection raises `MetadataUncertain`. While answers come, whatever they are
    to, nothing is given up: ZooKeeper answers in order, so on a busy machine what was asked behind thousands of other
    requests is answered late, and not never.
    """

    session: ZooKeeperSession
    comes_back = True

    def __init__(
        self, hosts: str, root: str, session_seconds: float, security: ZooKeeperSecurity | None = None
    ) -> None:
        self._hosts = hosts
        self._security = security
        self._root = root.rstrip("/")
        self._seconds = session_seconds
        self._watches: dict[str, list[LocalWatch]] = defaultdict(list)
        self._commits: dict[asyncio.Future[None], set[str]] = {}
        """Those that were asked for and have no outcome yet, with what they are about, and all that lies above that."""
        self._tasks: set[asyncio.Future[Any]] = set()
        self._closed = False
        self._answered_at = 0.0
        """When a session that is over had its last answer."""
        self.session = ZooKeeperSession(hosts, session_seconds, self, self._security)

    @classmethod
    async def open(
        cls,
        hosts: str,
        root: str = "",
        *,
        session_seconds: float = SESSION_SECONDS,
        security: ZooKeeperSecurity | None = None,
    ) -> ZooKeeperStore:
        """Return a store that is connected; raise `MetadataUnavailable` after the time of a session.

        ``hosts`` are ``host:port``, separated by commas; ``security`` is for servers that want TLS or a login.
        """
        if root:
            _check_segments(check_path(root))
        store = cls(hosts, root, session_seconds, security)
        store.session.start()
        try:
            await store._make_root()
        except BaseException:
            await store.close()
            raise
        return store

    async def _make_root(self) -> None:
        made = ""
        for name in self._root.split("/")[1:]:
            made += f"/{name}"
            request = Create(made, b"", OPEN_ACL_UNSAFE, 0)
            await self._read(lambda request=request: self._ask_unless(request, NodeExistsError))  # type: ignore[misc]
        await self._read(lambda: self._ask_unless(Exists("/", None)))

    # Reading.

    async def get(self, path: str) -> Stored | None:
        (found,) = await self.get_many([path])
        return found

    async def get_many(self, paths: Iterable[str]) -> list[Stored | None]:
        asked = [check_path(path) for path in paths]
        return [
            None if found is None else Stored(found[0], found[1].version)
            for found in await self._values(asked)
        ]

    async def _values(self, paths: Sequence[str]) -> list[Any]:
        """Return bytes and stat of each node, None for those that are not there; by few requests."""
        if len(paths) == 1:
            return await self._ask_all(paths, [GetData(self._full(paths[0]), None)])
        several = [paths[at : at + _WITH_ONE_REQUEST] for at in range(0, len(paths), _WITH_ONE_REQUEST)]
        requests = [GetMany([self._full(path) for path in some]) for some in several]
        values: list[Any] = []
        for found in await self._ask_all(paths, requests):
            for each in found:
                if isinstance(each, KazooException) and not isinstance(each, NoNodeError):
                    raise self._translated(each) from each
                values.append(None if isinstance(each, KazooException) else each)
        return values

    async def children(self, path: str) -> list[str]:
        below(path)
        (names,) = await self._ask_all([path], [GetChildren(self._full(path), None)])
        return sorted(name for name in names or () if path != "/" or self._root or name != "zookeeper")

    async def get_tree(self, path: str) -> dict[str, Stored]:
        found: dict[str, Stored] = {}
        parents = [path]
        while parents:
            some, parents = parents[:_AT_ONCE], parents[_AT_ONCE:]
            listed = await self._ask_all(some, [GetChildren(self._full(each), None) for each in some])
            names = [
                below(each) + name for each, names in zip(some, listed, strict=True) for name in names or ()
            ]
            for at in range(0, len(names), _AT_ONCE):
                few = names[at : at + _AT_ONCE]
                kept = await self._values(few)
                for name, node in zip(few, kept, strict=True):
                    if node is not None:
                        found[name] = Stored(node[0], node[1].version)
                        if node[1].numChildren:
                            parents.append(name)
        return dict(sorted(found.items()))

    async def _ask_all(self, paths: Sequence[str], requests: Sequence[Any]) -> list[Any]:
        """Return the answers to a request about each path; None where there is no such node."""
        # Reads see every commit that was asked for before. They wait for those that are about the same: hundreds of
        # topics are opened side by side, and each would wait for what all others write.
        before = [each for each, about in self._commits.items() if not about.isdisjoint(paths)]
        if before:
            await asyncio.wait(before)
        return await self._read(lambda: self._answers(requests))

    async def _answers(self, requests: Sequence[Any]) -> list[Any]:
        """Return the answers to requests; None where there is no such node."""
        session = self.session
        asked = [session.ask(each) for each in requests]
        found = []
        for each in asked:  # they come in this order
            try:
                found.append(await each)
            except NoNodeError:
                found.append(None)
            except BaseException:
                for other in asked:  # what became of the others concerns no caller
                    if other.done() and not other.cancelled():
                        other.exception()
                    other.cancel()
                raise
        return found

    async def _ask_unless(self, request: Any, *errors: type[Exception]) -> Any:
        try:
            return await self.session.ask(request)
        except errors:
            return None

    async def _read(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer, for as long as a session may last without one to anything."""
        began = time.monotonic()
        while True:
            asked = asyncio.ensure_future(ask())
            try:
                if not await self._is_done(asked, began):
                    raise self._unavailable()
                return asked.result()
            except (ConnectionClosedError, *_GONE):
                if self._closed or self._silent_for(began) > self._seconds:
                    raise self._unavailable() from None
                await asyncio.sleep(0.01)
            except KazooException as error:
                raise self._translated(error) from error
            finally:
                asked.cancel()

    async def _is_done(self, asked: asyncio.Future[Any], began: float) -> bool:
        """Wait for what was asked; return False once ZooKeeper has answered nothing at all for a session's time."""
        while not asked.done():
            left = self._seconds - self._silent_for(began)
            if left <= 0:
                return False
            await asyncio.wait([asked], timeout=left)
        return True

    def _silent_for(self, began: float) -> float:
        """Return for how long ZooKeeper has answered nothing, but not longer than since ``began``; in seconds."""
        return time.monotonic() - max(began, self._answered_at, self.session.answered_at)

    def _unavailable(self) -> MetadataUnavailable:
        why = f"ZooKeeper at {self._hosts} cannot be reached"
        if self._closed:
            why = self.session.ended
        elif not self.session.connected and (trouble := self.session.trouble):
            why += f": {trouble}"
        self.trouble = why
        return MetadataUnavailable(why)

    # Writing.

    async def commit(self, ops: Sequence[Op]) -> list[int]:
        check_ops(ops)
        for op in ops:
            _check_segments(op.path)
        if not ops:
            return []
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commits[ended] = {op.path for op in ops}.union(*(_parents(op.path) for op in ops), "/")
        try:
            outcome = await self._committed(ops)
        finally:
            del self._commits[ended]
            ended.set_result(None)
        self.trouble = ""
        return outcome

    async def _committed(self, ops: Sequence[Op]) -> list[int]:
        versions = _assumed(ops)
        if versions is not None and await self._sent(self._written_down(ops, versions, None)):
            return _outcome(ops, versions)
        for _ in range(_TRIES):
            known = await self._known(ops)
            outcome = _tried(ops, known, self.session.id)
            if isinstance(outcome, MetadataError):
                raise outcome
            versions = {path: node.version for path, node in known.nodes.items()}
            if await self._sent(self._written_down(ops, versions, known)):
                return outcome
        raise MetadataUnavailable(f"what is stored at {ops[0].path} changes too often: nothing was changed")

    def _written_down(
        self, ops: Sequence[Op], versions: Mapping[str, int], known: _Known | None
    ) -> list[Any]:
        """Return the operations for ZooKeeper. ``known`` has all parents; without it they are taken for granted."""
        now = dict(versions)
        requests: list[Any] = []

        def make(path: str, value: bytes, flags: int) -> list[str]:
            made = []
            if known is not None:
                above = [each for each in _parents(path) if each not in now]
                for each in above:
                    made += make(each, b"", 0)
            requests.append(Create(self._full(path), bytes(value), OPEN_ACL_UNSAFE, flags))
            now[path] = 0
            return [*made, path]

        for op in ops:
            version = now.get(op.path)
            if isinstance(op, Put):
                if version is None:
                    make(op.path, op.value, _EPHEMERAL if op.ephemeral else 0)
                else:
                    requests.append(SetData(self._full(op.path), bytes(op.value), version))
                    now[op.path] = version + 1
            elif isinstance(op, Delete):
                assert version is not None
                requests.append(DeleteNode(self._full(op.path), version))
                del now[op.path]
            elif version is not None:
                requests.append(CheckVersion(self._full(op.path), version))
            else:
                # ZooKeeper has no check that a node does not exist; it can only be made.
                for made in reversed(make(op.path, b"", 0)):
                    requests.append(DeleteNode(self._full(made), 0))
                    del now[made]
        return requests

    async def _sent(self, requests: Sequence[Any]) -> bool:
        """Send one commit; return whether ZooKeeper did it, or refused all of it because of what is there."""
        session = self.session
        asked = session.ask(Transaction(requests))
        try:
            if not await self._is_done(asked, time.monotonic()):
                if session.withdraw(asked):
                    raise self._unavailable()
                raise self._uncertain("the answer to a commit did not come")
            results = asked.result()
        except asyncio.CancelledError:
            session.withdraw(asked)
            raise
        except ConnectionClosedError:
            raise self._unavailable() from None
        except _GONE:
            raise self._uncertain("the connection broke while a commit was written") from None
        except KazooException as error:
            raise self._translated(error) from error
        failed = next(
            (each for each in results if isinstance(each, Exception) and not _came_along(each)), None
        )
        if failed is None:
            return True
        if isinstance(failed, BadArgumentsError):
            raise InvalidPath(f"ZooKeeper takes no such path: {', '.join(each.path for each in requests)}")
        if isinstance(failed, QuotaExceeded):
            self.trouble = "a quota of ZooKeeper's is used up"
            raise MetadataFull(self.trouble)
        if type(failed).__name__ in _REFUSED:
            return False
        raise self._translated(failed)

    def _uncertain(self, why: str) -> MetadataUncertain:
        self.trouble = f"ZooKeeper at {self._hosts}: {why}"
        return MetadataUncertain(self.trouble)

    def _translated(self, error: Exception) -> MetadataUnavailable:
        self.trouble = f"ZooKeeper at {self._hosts} refused: {type(error).__name__} {error}".rstrip()
        return MetadataUnavailable(self.trouble)

    async def _known(self, ops: Sequence[Op]) -> _Known:
        """Return what the port's rules have to know of the nodes that operations are about, and of those above them."""
        deleted = sorted({op.path for op in ops if isinstance(op, Delete)})

        async def children(path: str) -> list[str]:
            names = await self._ask_unless(GetChildren(self._full(path), None), NoNodeError)
            return [f"{path}/{name}" for name in names or ()]

        beneath = dict(
            zip(deleted, await self._read(lambda: asyncio.gather(*map(children, deleted))), strict=True)
        )
        paths = {op.path for op in ops} | {each for names in beneath.values() for each in names}
        asked = sorted(paths.union(*map(_parents, paths)))
        stats = await self._read(
            lambda: asyncio.gather(*(self._ask_unless(Exists(self._full(each), None)) for each in asked))
        )
        nodes = {
            path: Node(b"", stat.version, stat.ephemeralOwner)
            for path, stat in zip(asked, stats, strict=True)
            if stat is not None
        }
        return _Known(nodes, beneath)

    # Watches and sessions.

    async def watch(self, path: str) -> Watch:
        if path != "/":
            check_path(path)
        watch = LocalWatch(path, lambda ended: self._unwatched(path, ended))
        self._watches[path].append(watch)
        try:
            await self._read(lambda: self._ask_unless(AddWatch(self._full(path))))
        except BaseException:
            watch.close()
            raise
        return watch

    def _unwatched(self, path: str, watch: LocalWatch) -> None:
        if watch in self._watches[path]:
            self._watches[path].remove(watch)
        if not self._watches[path]:
            del self._watches[path]
            if not self._closed:
                self._soon(self._ask_unless(RemoveWatch(self._full(path)), KazooException))

    def _soon(self, what: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def connected(self) -> None:
        """Ask for all watches again, and have those that there were before read anew what they may have missed."""
        if self._watches:
            self._soon(self._watch_again())

    async def _watch_again(self) -> None:
        before = [watch for watches in self._watches.values() for watch in watches]
        session = self.session
        try:
            await asyncio.gather(*(session.ask(AddWatch(self._full(path))) for path in tuple(self._watches)))
        except KazooException as error:  # the connection broke again: the next one does this again
            _log.debug("watches wait for another connection: %s", error)
            return
        for watch in before:
            watch.lose()

    def changed(self, path: str) -> None:
        """Tell watches of it."""
        path = path[len(self._root) :]
        if path:
            for watches in tuple(self._watches.values()):
                for watch in watches:
                    watch.tell([path])

    def lost(self, why: str) -> None:
        """Begin another session, then tell whoever relied on the one that ended."""
        lost = self.session
        self._answered_at = max(self._answered_at, lost.answered_at)
        _log.warning("the session %x at %s is lost: %s", lost.id & (2**64 - 1), self._hosts, why)
        self.trouble = why
        self.session = ZooKeeperSession(
            self._hosts, self._seconds, self, self._security, reached=lost.reached
        )
        for told in tuple(lost.on_lost):
            told()
        self.session.start()

    async def is_writable(self) -> bool:
        return self.session.connected

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for watches in tuple(self._watches.values()):
            for watch in tuple(watches):
                watch.close()
        for task in tuple(self._tasks):
            task.cancel()
        await self.session.close()

    def _full(self, path: str) -> str:
        if path == "/":
            return self._root or "/"
        return self._root + check_path(path)


_REFUSED = {
    "NoNodeError",
    "NodeExistsError",
    "BadVersionError",
    "NotEmptyError",
    "NoChildrenForEphemeralsError",
}
"""What ZooKeeper says when a node is not as a commit expects."""


def _came_along(error: Exception) -> bool:
    """Whether an operation failed only because another one of the commit did."""
    return isinstance(error, (RolledBackError, RuntimeInconsistency))


def _check_segments(path: str) -> None:
    if not {".", ".."}.isdisjoint(path.split("/")):
        raise InvalidPath(f"ZooKeeper takes no path with . or .. in it: {path!r}")


def _parents(path: str) -> list[str]:
    names = path.split("/")[1:-1]
    return ["/" + "/".join(names[: at + 1]) for at in range(len(names))]


def _assumed(ops: Sequence[Op]) -> dict[str, int] | None:
    """Return the versions by path that operations expect to find, or None where they do not say."""
    first: dict[str, int] = {}
    seen: set[str] = set()
    for op in ops:
        if op.expected == ANY or (isinstance(op, Check) and op.expected == MUST_NOT_EXIST):
            return None
        if op.path not in seen:
            seen.add(op.path)
            if op.expected != MUST_NOT_EXIST:
                first[op.path] = op.expected
    return first if _outcome_fits(ops, first) else None


def _outcome_fits(ops: Sequence[Op], versions: Mapping[str, int]) -> bool:
    """Whether the later operations on a path expect what the earlier ones leave there."""
    now = dict(versions)
    for op in ops:
        if now.get(op.path, MUST_NOT_EXIST) != op.expected:
            return False
        if isinstance(op, Put):
            now[op.path] = op.expected + 1
        elif isinstance(op, Delete):
            del now[op.path]
    return True


def _outcome(ops: Sequence[Op], versions: Mapping[str, int]) -> list[int]:
    return [
        op.expected + 1 if isinstance(op, Put) else MUST_NOT_EXIST if isinstance(op, Delete) else op.expected
        for op in ops
    ]


def _tried(ops: Sequence[Op], known: _Known, session: int) -> list[int] | MetadataError:
    """Return what the port's rules say to a commit on nodes that were read."""
    staging = Staging(known.nodes.get, lambda path: known.beneath.get(path, ()), makes_parents=True)
    return staging.attempt(StagedCommit(ops, session or 1))
