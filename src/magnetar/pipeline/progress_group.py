"""Lag that Kafka's tools can see: a query commits how far it has come to a consumer group (option ``progressGroup``).

The query is the group's only member, and the broker's own rules keep it so: while it lives, nobody else can join or
commit, and a query that was silent for longer than its session finds its place gone. The first one wins; a second
query with the same name fails, after waiting as long as a crashed one would take to be forgotten. Offsets are those of
finished micro-batches. Where a query begins is never taken from the group: that is the checkpoint's.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Mapping

from magnetar.client.cluster import Cluster
from magnetar.client.errors import ClientError
from magnetar.client.group import GroupTaken, NoMember, SoleMember
from magnetar.client.settings import ClientSettings, settings_of
from magnetar.pipeline.options import SourceOptions, TopicPartition
from magnetar.pipeline.watermarks import broker_address

SESSION_TIMEOUT_MS = 10_000
_BEATS_PER_SESSION = 3
_PAUSE_S = 0.5


class ProgressRefused(Exception):
    """The group belongs to somebody else."""


class ProgressGroup:
    """One query's place in its group. `report` is called by the query, heartbeats come from a thread."""

    def __init__(
        self, settings: ClientSettings, group: str, *, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> None:
        self._group = group
        self._session_s = session_timeout_ms / 1000
        self._cluster = Cluster(settings)
        self._member = SoleMember(self._cluster, group, session_timeout_ms=session_timeout_ms)
        self._partitions: set[TopicPartition] = set()
        self._joined = False
        self._refused: str | None = None
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="progress group", daemon=True)

    def report(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit how far the query has come; raise `ProgressRefused` if the group is somebody else's.

        A broker that cannot be reached is no reason to stop a query: then a warning says so, and the next report
        brings all.
        """
        if not offsets:
            return
        with self._lock:
            if not self._thread.is_alive() and not self._ended.is_set():
                self._thread.start()
            if self._refused is not None:
                raise ProgressRefused(self._refused)
            try:
                done = {(which.topic, which.partition): offset for which, offset in offsets.items()}
                self._as_member(offsets, lambda: self._member.commit(done))
            except ClientError as error:
                self._cluster.close()
                warnings.warn(f"progress is not visible in group {self._group!r} now: {error}", stacklevel=2)

    def close(self) -> None:
        """Leave the group; what was committed stays."""
        self._ended.set()
        with self._lock:
            try:
                if self._joined:
                    self._member.leave()
            except ClientError:
                pass  # then the session ends by itself
            self._joined = False
            self._cluster.close()

    def _as_member(self, wanted: Mapping[TopicPartition, int], act: Callable[[], None]) -> None:
        """Do what only a member may do; join before, if need be, and again if the group went on without us."""
        for _ in range(3):
            if not self._joined or not self._partitions.issuperset(wanted):
                self._join({*self._partitions, *wanted})
            try:
                self._cluster.retrying(act, timeout_s=self._session_s)
                return
            except NoMember:
                self._joined = False
        raise ClientError(f"group {self._group!r} does not come to rest")

    def _join(self, partitions: set[TopicPartition]) -> None:
        """Join; wait for a member that may have crashed, and raise `ProgressRefused` if it is still there then."""
        deadline = time.monotonic() + 1.5 * self._session_s
        while True:
            try:
                self._cluster.retrying(
                    lambda: self._member.join(sorted(partitions)), timeout_s=self._session_s
                )
                break
            except NoMember:
                pass
            except GroupTaken as error:
                if time.monotonic() > deadline:
                    self._refused = (
                        f"{error}. A group shows the progress of one query: give another progressGroup, or stop "
                        "the other query"
                    )
                    raise ProgressRefused(self._refused) from None
            time.sleep(_PAUSE_S)
        self._joined, self._partitions = True, partitions

    def _beat(self) -> None:
        while not self._ended.wait(self._session_s / _BEATS_PER_SESSION):
            with self._lock:
                if not self._joined or self._ended.is_set():
                    continue
                try:
                    self._member.heartbeat()
                except NoMember:
                    self._joined = False  # the next report joins again, or is refused
                except ClientError:
                    self._cluster.close()


def progress_group(options: SourceOptions) -> ProgressGroup:
    """Return the group that a query's options name; raise ``ValueError`` if nobody says where the brokers are."""
    assert options.progress_group is not None
    kafka = dict(options.kafka)
    if "bootstrap.servers" not in kafka:
        address = None if options.data is None else broker_address(options.data)
        if address is None:
            raise ValueError(
                "progressGroup needs a broker to commit to: start it, or give kafka.bootstrap.servers"
            )
        kafka["bootstrap.servers"] = address
    return ProgressGroup(settings_of(kafka), options.progress_group)
