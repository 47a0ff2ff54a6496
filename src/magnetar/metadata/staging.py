"""Commits tried one after the other on a tree, before anything of them is written.

Each commit sees what those before it will have changed. One that fails leaves nothing behind, so that many which
waited together can be written as one: what remains of them is the last state of every path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from magnetar.metadata.errors import BadVersion, MetadataError, NotEmpty, NotFound, ParentIsEphemeral
from magnetar.metadata.ops import (
    ANY,
    MUST_NOT_EXIST,
    Check,
    Delete,
    Op,
    Put,
    Stored,
)


class Node(NamedTuple):
    """A value, its version, and the session that it ends with (0: none)."""

    value: bytes
    version: int
    owner: int = 0


class StagedCommit(NamedTuple):
    """Operations, and the session that their ephemeral nodes belong to."""

    ops: Sequence[Op]
    session: int = 0


Outcome = list[int] | MetadataError
"""Of one commit: the versions afterwards, or why nothing of it was done."""


class Staging:
    """What commits change of a tree, of which ``find`` has a node and ``beneath`` the paths beneath one."""

    def __init__(
        self,
        find: Callable[[str], Node | None],
        beneath: Callable[[str], Iterable[str]],
        *,
        makes_parents: bool = False,
    ) -> None:
        self._find = find
        self._beneath = beneath
        self._makes_parents = makes_parents
        self.changed: dict[str, Node | None] = {}
        """By path, as it is after all commits that succeeded; None where nothing is left."""
        self._added: set[str] = set()
        """Paths that commits created or tried to; what is not there yet may lie beneath one that is to be deleted."""
        self._draft: dict[str, Node | None] = {}
        """What the commit that is being tried changes beyond that."""

    def attempt(self, commit: StagedCommit) -> Outcome:
        """Add one commit to what is changed, and return its outcome."""
        self._draft = {}
        try:
            versions = [self._apply(op, commit.session) for op in commit.ops]
        except MetadataError as error:
            return error
        self.changed |= self._draft
        return versions

    def _apply(self, op: Op, session: int) -> int:
        node = self._node(op.path)
        actual = MUST_NOT_EXIST if node is None else node.version
        _expect(op, actual)
        if isinstance(op, Put):
            if node is None:
                self._check_parents(op.path)
                self._added.add(op.path)
                owner = session if op.ephemeral else 0
            else:
                owner = node.owner
            self._draft[op.path] = Node(bytes(op.value), actual + 1, owner)
            return actual + 1
        if isinstance(op, Delete):
            self._check_empty(op.path)
            self._draft[op.path] = None
            return MUST_NOT_EXIST
        return actual

    def _node(self, path: str) -> Node | None:
        if path in self._draft:
            return self._draft[path]
        return self.changed[path] if path in self.changed else self._find(path)

    def _check_parents(self, path: str) -> None:
        parent = path.rpartition("/")[0]
        if not parent:
            return
        node = self._node(parent)
        if node is not None and node.owner:
            raise ParentIsEphemeral(path)
        if node is None and self._makes_parents:
            self._check_parents(parent)
            self._added.add(parent)
            self._draft[parent] = Node(b"", 0)

    def _check_empty(self, path: str) -> None:
        start = path + "/"
        added = (each for each in self._added if each.startswith(start))
        for each in chain(added, self._beneath(path)):
            if self._node(each) is not None:
                raise NotEmpty(path, each)


_MAY_BE_MISSING: dict[type, tuple[int, ...]] = {
    Put: (ANY, MUST_NOT_EXIST),
    Check: (MUST_NOT_EXIST,),
    Delete: (),
}
"""By operation, the expected versions with which there may be nothing at its path."""


def _expect(op: Op, actual: int) -> None:
    if actual != MUST_NOT_EXIST:
        if op.expected not in (ANY, actual):
            raise BadVersion(op.path, op.expected, actual)
        return
    if op.expected not in _MAY_BE_MISSING[type(op)]:
        raise NotFound(op.path, op.expected)


def stored(node: Node | None) -> Stored | None:
    """Return what readers see of a node."""
    return None if node is None else Stored(node.value, node.version)
