"""The states of a coordinator's partition in this broker, and what follows from each.

state      requests                    what goes on                  next states
    ELSEWHERE  NOT_COORDINATOR             nothing                       LOADING, READY (nothing is written), CLOSED
    LOADING    COORDINATOR_LOAD_IN_PROG.   the log is read               READY, LEAVING, CLOSED
READY      decided, answered now       nothing                       WRITING, LOADING (a fault), LEAVING, CLOSED
    WRITING    decided, answered later     an append                     READY, LOADING (a fault), LEAVING, CLOSED
    LEAVING    NOT_COORDINATOR             what was decided is finished  ELSEWHERE, CLOSED
    CLOSED     COORDINATOR_NOT_AVAILABLE   what was decided is finished

A fault during a load restarts the load. An append may outlast the state that it began in: loading waits
for it, and so does leaving.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from magnetar.wire.kafka.errors import ErrorCode


class ShardState(Enum):
    """The state of a partition in this broker; see the table above."""

    ELSEWHERE = auto()
    LOADING = auto()
    READY = auto()
    WRITING = auto()
    LEAVING = auto()
    CLOSED = auto()


GOES_TO: Final = {
    ShardState.ELSEWHERE: {ShardState.LOADING, ShardState.READY, ShardState.CLOSED},
    ShardState.LOADING: {ShardState.READY, ShardState.LEAVING, ShardState.CLOSED},
    ShardState.READY: {ShardState.WRITING, ShardState.LOADING, ShardState.LEAVING, ShardState.CLOSED},
    ShardState.WRITING: {ShardState.READY, ShardState.LOADING, ShardState.LEAVING, ShardState.CLOSED},
    ShardState.LEAVING: {ShardState.ELSEWHERE, ShardState.CLOSED},
    ShardState.CLOSED: {ShardState.CLOSED},
}
REFUSES: Final = {
    ShardState.ELSEWHERE: ErrorCode.NOT_COORDINATOR,
    ShardState.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ShardState.LEAVING: ErrorCode.NOT_COORDINATOR,
    ShardState.CLOSED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
DECIDES: Final = frozenset({ShardState.READY, ShardState.WRITING})
