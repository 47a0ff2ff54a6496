"""One partition of ``__share_group_state`` as a value: the states of share partitions, made from facts (KIP-932).

Who writes names two epochs. The group's coordinator begins a state with a state epoch, the broker that has the log
writes with its leader epoch; whoever comes with an earlier one than is known has been replaced, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from magnetar.coordination.decision import Action, Decision, Fact, Marker, Stated
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.coordination.shares.share_partition import StateBatch
from magnetar.kafka.shares.state import (
    UNSET,
    ShareKey,
    ShareState,
    applied,
    read_share_fact,
    snapshot_fact,
    update_fact,
    updated,
)
from magnetar.wire.kafka.errors import ErrorCode

FIRST_EPOCH = 0
"""The state epoch in which a partition's leader begins a state that nobody has begun."""
UPDATES_PER_SNAPSHOT = 500
"""Kafka's ``share.coordinator.snapshot.update.records.per.snapshot``."""
_FACTS_AT_ONCE = 100


class ShareStates:
    """A `Decider`: replay its facts in order, then ask. Raises `CoordinatorRefused`."""

    def __init__(self, clock: Callable[[], int]) -> None:
        """``clock`` is for timestamps that nobody here reads."""
        self.states: dict[ShareKey, ShareState] = {}
        """To look at, not to change."""
        self._keys_of: dict[str, set[ShareKey]] = {}  # those of ``states``, by group
        self.foreign = 0
        self._clock = clock

    # Asking.

    def of_group(self, group_id: str) -> dict[ShareKey, ShareState]:
        """Return the states of one group; it costs as many steps as there are."""
        return {key: self.states[key] for key in self._keys_of.get(group_id, ())}

    def read(self, key: ShareKey, leader_epoch: int = UNSET) -> Decision[ShareState]:
        """Return a state, an empty one where there is none, and note who leads from now on."""
        state = self.states.get(key)
        if state is None:
            return Decision((), ShareState())
        self._check_leader(state, leader_epoch)
        if leader_epoch <= state.leader_epoch:
            return Decision((), state)
        state = self.states[key] = state._replace(leader_epoch=leader_epoch)
        return Decision((update_fact(key, state, ()),), state)

    def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> Decision[ErrorCode]:
        """Begin a state anew; in the first epoch, only if there is none."""
        state = self.states.get(key)
        if state is not None and state_epoch < state.state_epoch:
            raise CoordinatorRefused(ErrorCode.FENCED_STATE_EPOCH)
        if state is not None and state_epoch == FIRST_EPOCH and state.start_offset != UNSET:
            # Of two brokers that led one after the other and found nothing, the slower one must not undo what the
            # other's members have acknowledged since.
            return Decision((), ErrorCode.NONE)
        epoch = 0 if state is None else state.snapshot_epoch + 1
        leads = 0 if state is None else state.leader_epoch
        state = ShareState(state_epoch, leads, start_offset, 0, snapshot_epoch=epoch)
        self._keep(key, state)
        return Decision((snapshot_fact(key, state, self._clock()),), ErrorCode.NONE)

    def write(
        self,
        key: ShareKey,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        complete: int,
        batches: Sequence[StateBatch],
    ) -> Decision[ErrorCode]:
        """Take in what has become of some offsets."""
        state = self.states.get(key)
        if state is None:
            raise CoordinatorRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._check_leader(state, leader_epoch)
        if UNSET < state_epoch < state.state_epoch:
            raise CoordinatorRefused(ErrorCode.FENCED_STATE_EPOCH)
        state = updated(state, leader_epoch, start_offset, complete, batches)
        if state.updates < UPDATES_PER_SNAPSHOT:
            fact = update_fact(key, state, batches)
        else:
            state = state._replace(snapshot_epoch=state.snapshot_epoch + 1, updates=0)
            fact = snapshot_fact(key, state, self._clock())
        self.states[key] = state
        return Decision((fact,), ErrorCode.NONE)

    def delete(self, key: ShareKey) -> Decision[ErrorCode]:
        """Forget a state, if there is one."""
        if not self._drop(key):
            return Decision((), ErrorCode.NONE)
        return Decision((snapshot_fact(key, None, 0),), ErrorCode.NONE)

    def delete_all(self, wanted: Callable[[ShareKey], bool]) -> Decision[None]:
        """Forget states of what is gone."""
        keys = [key for key in self.states if wanted(key)]
        for key in keys:
            self._drop(key)
        return Decision(tuple(snapshot_fact(key, None, 0) for key in keys), None)

    def _keep(self, key: ShareKey, state: ShareState) -> None:
        self.states[key] = state
        self._keys_of.setdefault(key.group_id, set()).add(key)

    def _drop(self, key: ShareKey) -> bool:
        """Forget a state; return whether there was one."""
        if self.states.pop(key, None) is None:
            return False
        keys = self._keys_of[key.group_id]
        keys.remove(key)
        if not keys:
            del self._keys_of[key.group_id]
        return True

    @staticmethod
    def _check_leader(state: ShareState, leader_epoch: int) -> None:
        if UNSET < leader_epoch < state.leader_epoch:
            raise CoordinatorRefused(ErrorCode.FENCED_LEADER_EPOCH)

    # As every decider.

    def replay(self, stated: Stated) -> None:
        """Take in what was stated before; raises ``WireError`` if the record is damaged."""
        found = None if isinstance(stated, Marker) else read_share_fact(stated.key, stated.value)
        if found is None:
            self.foreign += 1
        elif found.said is None:
            self._drop(found.key)
        else:
            self._keep(found.key, applied(self.states.get(found.key), found.said))

    def resume(self, now_ms: int) -> Decision[None]:
        """There is nothing to go on with."""
        return Decision((), None)

    def done(self, action: Action, result: object, now_ms: int) -> Decision[None]:
        """Nothing is ever asked for."""
        raise AssertionError(action)

    def wake_ms(self) -> int | None:
        """Return that there are no deadlines."""
        return None

    def expire(self, now_ms: int) -> Decision[None]:
        """Nothing is ever due."""
        return Decision((), None)

    def live_facts(self) -> int:
        """Return how many states there are."""
        return len(self.states)

    def snapshot(self) -> Iterator[Sequence[Fact]]:
        """Return a record of each state, some at a time."""
        keys = list(self.states)
        for start in range(0, len(keys), _FACTS_AT_ONCE):
            yield [
                snapshot_fact(key, self.states[key], self._clock())
                for key in keys[start : start + _FACTS_AT_ONCE]
                if key in self.states
            ]
