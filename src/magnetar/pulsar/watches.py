"""Who watches which topics come and go (WATCH_TOPIC_LIST), and what each is told.

The broker is looked at once for all watchers: an event costs it one look into a table, and each watcher concerned a
note. What a note means, whether the pattern matches and the client may know of the topic, is found out later, in the
loop's other turns. Nothing that goes wrong there concerns who makes or deletes the topic.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from magnetar.node.events import Events
from magnetar.pulsar.names import TopicsHash, names_of, partition_name
from magnetar.pulsar.patterns import WORK_OF_A_NAME, WORK_OF_A_TURN, Pattern
from magnetar.topics.names import TopicName
from magnetar.topics.topic import Topic

MAX_NOTES = 1000
"""That may wait for a client which does not take what it is told; then it is let go, and asks for everything anew."""
_log = logging.getLogger("magnetar.pulsar")


class WatchingClient(Protocol):
    """Who watches."""

    @property
    def is_writable(self) -> bool:
        """Whether it takes what it is told."""
        ...

    def topics_changed(self, came: list[str], went: list[str], topics_hash: str) -> None:
        """Tell it."""
        ...

    def fell_behind(self) -> None:
        """It is not told any more: it does not take it."""
        ...


class TopicsChange(NamedTuple):
    """Names of a topic that came and went."""

    topic: TopicName
    came: tuple[str, ...]
    went: tuple[str, ...]


class Watches:
    """All watchers of one broker."""

    def __init__(self, events: Events, topics: Iterable[Topic]) -> None:
        self._of: dict[str, set[TopicListWatcher]] = {}
        self._queue: deque[TopicListWatcher] = deque()
        self._partitions = {each.topic_id: each.partitions for each in topics if each.partitioned}
        """Of the topics whose partitions have names."""
        events.topic_created.append(self._created)
        events.topic_changed.append(self._changed)
        events.topic_deleted.append(self._deleted)

    def add(self, watch: TopicListWatcher) -> None:
        """Tell a watcher what changes from now on."""
        self._of.setdefault(watch.namespace, set()).add(watch)

    def remove(self, watch: TopicListWatcher) -> None:
        """Tell it no more."""
        there = self._of.get(watch.namespace)
        if there is not None:
            there.discard(watch)
            if not there:
                del self._of[watch.namespace]

    @property
    def count(self) -> int:
        """How many watchers there are."""
        return sum(map(len, self._of.values()))

    def queue(self, watch: TopicListWatcher) -> None:
        """Let a watcher work when it is its turn."""
        self._queue.append(watch)
        if len(self._queue) == 1:
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        """Work for a while, a watcher after the other, and go on in a later turn of the loop."""
        done = 0
        while self._queue and done < WORK_OF_A_TURN:
            watch = self._queue[0]
            try:
                done += WORK_OF_A_NAME if watch.is_ended else watch.work()
            except Exception:  # the next one has done nothing wrong
                _log.exception("a watcher of topics in %s failed and is ended", watch.namespace)
                watch.end()
            self._queue.popleft()
        if self._queue:
            asyncio.get_running_loop().call_soon(self._work)

    def _created(self, topic: Topic) -> None:
        if topic.partitioned:
            self._partitions[topic.topic_id] = topic.partitions
        self._note(topic, 0, came=True)

    def _changed(self, topic: Topic) -> None:
        known = self._partitions.get(topic.topic_id, 0)
        if not topic.partitioned or known == topic.partitions:
            return
        self._partitions[topic.topic_id] = topic.partitions
        if known == 0:
            self._tell(topic, (), (str(topic.name),))
        self._note(topic, known, came=True)

    async def _deleted(self, topic: Topic) -> None:
        self._partitions.pop(topic.topic_id, None)
        self._note(topic, 0, came=False)

    def _note(self, topic: Topic, known: int, *, came: bool) -> None:
        if topic.name.namespace_name not in self._of or topic.internal:
            return
        if topic.partitioned:
            names = tuple(partition_name(topic.name, index) for index in range(known, topic.partitions))
        else:
            names = tuple(names_of(topic))
        self._tell(topic, names if came else (), () if came else names)

    def _tell(self, topic: Topic, came: tuple[str, ...], went: tuple[str, ...]) -> None:
        change = TopicsChange(topic.name, came, went)
        for watch in tuple(self._of.get(topic.name.namespace_name, ())):
            watch.note(change)


class TopicListWatcher:
    """One client's view of a namespace's topics. It keeps no names: what it was told is in ``hash`` alone."""

    def __init__(
        self,
        watches: Watches,
        namespace: str,
        pattern: Pattern,
        may_see: Callable[[TopicName], bool],
        client: WatchingClient,
    ) -> None:
        self.namespace = namespace
        self.hash = TopicsHash()
        self.is_ended = False
        self._watches = watches
        self._pattern = pattern
        self._may_see = may_see
        self._client = client
        self._notes: deque[TopicsChange] = deque()
        self._is_begun = False
        self._is_queued = False
        watches.add(self)

    def note(self, change: TopicsChange) -> None:
        """Something changed; its client is told in a later turn, and not before it has the list."""
        if len(self._notes) >= MAX_NOTES and not self._client.is_writable:
            self.end()
            self._client.fell_behind()
            return
        self._notes.append(change)
        self.go_on()

    def begin(self, names: set[str]) -> None:
        """The client has this list, and may be told from now on; what has changed meanwhile may stand in it or not."""
        self._is_begun = True
        for name in names:
            self.hash.add(name)
        self._notes = deque(
            TopicsChange(
                each.topic,
                tuple(name for name in each.came if name not in names),
                tuple(name for name in each.went if name in names),
            )
            for each in self._notes
        )
        self.go_on()

    def go_on(self) -> None:
        """Tell what is to be told, in its turn, if the client takes it."""
        if self._notes and self._is_begun and not self._is_queued and self._client.is_writable:
            self._is_queued = True
            self._watches.queue(self)

    def work(self) -> int:
        """Tell some of what is to be told; give how much work it was."""
        self._is_queued = False
        came: list[str] = []
        went: list[str] = []
        done = 0
        while self._notes and done < WORK_OF_A_TURN:
            change = self._notes.popleft()
            done += WORK_OF_A_NAME
            if not self._may_see(change.topic):
                continue
            for names, matched in ((change.came, came), (change.went, went)):
                some = names[: 1 + (WORK_OF_A_TURN - done) // self._work_of(names)] if names else ()
                matched += filter(self._pattern.matches, some)
                done += len(some) * self._work_of(names)
                if len(some) < len(names):
                    left = names[len(some) :]
                    is_came = names is change.came
                    self._notes.appendleft(
                        TopicsChange(change.topic, left if is_came else (), change.went if is_came else left)
                    )
                    break
        self._send(came, went)
        self.go_on()
        return done

    def _work_of(self, names: tuple[str, ...]) -> int:
        return WORK_OF_A_NAME + self._pattern.work(names[-1]) if names else WORK_OF_A_NAME

    def _send(self, came: list[str], went: list[str]) -> None:
        for name in came:
            self.hash.add(name)
        for name in went:
            self.hash.remove(name)
        if came or went:
            self._client.topics_changed(sorted(came), sorted(went), str(self.hash))

    def end(self) -> None:
        """Tell nothing more."""
        self.is_ended = True
        self._notes.clear()
        self._watches.remove(self)
