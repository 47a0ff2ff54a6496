"""Commit offsets: few in one decision, very many in parts, between which the event loop gets a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import chain

from magnetar.base.background import Background
from magnetar.base.slices import batched, sliced
from magnetar.coordination.decision import Transaction
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shard import Shard
from magnetar.kafka.coordinators.decider import GroupsDecider
from magnetar.kafka.coordinators.facts import Committer, OffsetCommit
from magnetar.wire.kafka.errors import ErrorCode

COMMITS_AT_ONCE = 150
"""So many are decided in well under a millisecond, and encoded in one or two."""


class Committing:
    """One request of one group. Each part is decided on its own: if the right to commit ends, the rest is refused."""

    def __init__(
        self,
        shard: Shard[GroupsDecider],
        group_id: str,
        who: Committer,
        api_version: int,
        clock: Callable[[], int],
        transaction: Transaction | None = None,
    ) -> None:
        self._shard = shard
        self._group_id = group_id
        self._who = who
        self._api_version = api_version
        self._clock = clock
        self._transaction = transaction

    def begin(
        self, commits: Sequence[OffsetCommit], background: Background
    ) -> asyncio.Future[list[ErrorCode]]:
        """Return one code per commit, when all are durable. Raises `CoordinatorRefused`, now or then.

        A commit that has begun continues though its client does not wait any more.
        """
        if len(commits) <= COMMITS_AT_ONCE:
            return self._decided(commits)
        return background.once(
            "committing many offsets",
            self._in_parts(commits),
            about=self._group_id,
            answers=(CoordinatorRefused,),
        )

    def _decided(self, commits: Sequence[OffsetCommit]) -> asyncio.Future[list[ErrorCode]]:
        now_ms = self._clock()
        return self._shard.ask(
            lambda decider, token: decider.offsets.commit(
                self._group_id,
                self._who,
                commits,
                self._api_version,
                now_ms,
                transaction=self._transaction,
            )
        )

    async def _in_parts(self, commits: Sequence[OffsetCommit]) -> list[ErrorCode]:
        parts: list[asyncio.Future[list[ErrorCode]]] = []
        code_of_the_rest = ErrorCode.NONE
        async for some in sliced(batched(commits, COMMITS_AT_ONCE)):
            try:
                parts.append(self._decided(some))
            except CoordinatorRefused as refused:
                if not parts:
                    raise
                code_of_the_rest = refused.code
                break
        codes = list(chain.from_iterable(await asyncio.gather(*parts)))
        return codes + [code_of_the_rest] * (len(commits) - len(codes))
