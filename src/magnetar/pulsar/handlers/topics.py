"""GET_TOPICS_OF_NAMESPACE and WATCH_TOPIC_LIST: which topics there are, and which come and go.

A pattern is the client's: a regular expression over topic names, which Python matches by trying. One that tries too
much would hold the whole broker up, so only plain ones are watched; a client whose pattern is refused asks again now
and then and filters the names itself, which is also what it does with the answer to GET_TOPICS_OF_NAMESPACE.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from magnetar.broker.topic import Topic
from magnetar.pulsar.errors import NotAllowed, NotAuthorized
from magnetar.pulsar.handlers.route import success
from magnetar.pulsar.names import PulsarName, names_of, topics_hash
from magnetar.pulsar.wire.pulsar_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
)

if TYPE_CHECKING:
    from magnetar.pulsar.connection import Connection

_MOST_PATTERN_CHARS = 200
_MOST_QUANTIFIERS = 2
_QUANTIFIER = re.compile(r"(?<!\\)[*+{]")
_REPEATED_GROUP = re.compile(r"\)[*+{]")


def topics_of_namespace(
    connection: Connection, command: CommandGetTopicsOfNamespace, entry: memoryview
) -> None:
    """Give the names of a namespace's topics; of partitioned ones those of their partitions."""
    topics = connection.services.topics
    names: list[str] = []
    if command.mode != CommandGetTopicsOfNamespace.NON_PERSISTENT:
        names += topics.names(command.namespace)
    if command.mode != CommandGetTopicsOfNamespace.PERSISTENT:
        names += topics.non_persistent.names(command.namespace)
    names = _visible(connection, command.namespace, names)
    answer = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE)
    response = answer.getTopicsOfNamespaceResponse
    response.request_id = command.request_id
    response.filtered = False
    response.topics_hash = topics_hash(names)
    response.changed = response.topics_hash != command.topics_hash
    if response.changed:
        response.topics.extend(names)
    connection.answer(answer)


def _visible(connection: Connection, namespace: str, names: list[str] | None = None) -> list[str]:
    """Give those of the names, or of all persistent topics of a namespace, that the client may know of."""
    names = connection.services.topics.names(namespace) if names is None else names
    access = connection.access
    if access is None:
        return names
    found = [name for name in names if access.looks_up(PulsarName.parse(name).topic)]
    if names and not found:
        raise NotAuthorized(f"Role {connection.role} is not authorized to see topics of {namespace}")
    return found


def watch_topic_list(connection: Connection, command: CommandWatchTopicList, entry: memoryview) -> None:
    """Give the topics that match a pattern now, and tell which come and go from here on."""
    pattern = _plain(command.topics_pattern)
    watch = Watch(connection, command.watcher_id, command.namespace, pattern)
    if (old := connection.watchers.pop(command.watcher_id, None)) is not None:
        old()
    connection.watchers[command.watcher_id] = watch.end
    answer = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_SUCCESS)
    done = answer.watchTopicListSuccess
    done.request_id = command.request_id
    done.watcher_id = command.watcher_id
    done.topics_hash = topics_hash(watch.names)
    if done.topics_hash != command.topics_hash:
        done.topic.extend(sorted(watch.names))
    connection.answer(answer)


def _plain(text: str) -> re.Pattern[str]:
    """Give a pattern that is matched in little time; raise ``NotAllowed``."""
    try:
        pattern = re.compile(text.removeprefix("persistent://"))
    except (re.error, OverflowError, RecursionError) as error:
        raise NotAllowed(f"the pattern is not understood: {error}") from None
    quantifiers = len(_QUANTIFIER.findall(text))
    if len(text) > _MOST_PATTERN_CHARS or quantifiers > _MOST_QUANTIFIERS or _REPEATED_GROUP.search(text):
        raise NotAllowed("the pattern is too involved to be watched")
    return pattern


class Watch:
    """One client's view of a namespace's topics, kept up to date."""

    def __init__(
        self, connection: Connection, watcher_id: int, namespace: str, pattern: re.Pattern[str]
    ) -> None:
        self._connection = connection
        self._watcher_id = watcher_id
        self._namespace = namespace
        self._pattern = pattern
        self._loop = asyncio.get_running_loop()
        self.names = self._matching(_visible(connection, namespace))
        events = connection.services.broker.events
        events.topic_created.append(self._changed)
        events.topic_changed.append(self._changed)
        events.topic_deleted.append(self._deleted)

    def end(self) -> None:
        """Watch no more."""
        events = self._connection.services.broker.events
        events.topic_created.remove(self._changed)
        events.topic_changed.remove(self._changed)
        events.topic_deleted.remove(self._deleted)

    def _matching(self, names: Iterable[str]) -> set[str]:
        return {name for name in names if self._pattern.fullmatch(name.removeprefix("persistent://"))}

    def _changed(self, topic: Topic) -> None:
        if topic.name.namespace_name == self._namespace:
            self._tell(_visible(self._connection, self._namespace))

    async def _deleted(self, topic: Topic) -> None:
        if topic.name.namespace_name == self._namespace:
            gone = set(names_of(topic))
            self._tell([name for name in _visible(self._connection, self._namespace) if name not in gone])

    def _tell(self, names: Iterable[str]) -> None:
        now = self._matching(names)
        came, went = now - self.names, self.names - now
        if not came and not went:
            return
        self.names = now
        command = BaseCommand(type=BaseCommand.WATCH_TOPIC_UPDATE)
        update = command.watchTopicUpdate
        update.watcher_id = self._watcher_id
        update.new_topics.extend(sorted(came))
        update.deleted_topics.extend(sorted(went))
        update.topics_hash = topics_hash(now)
        self._connection.answer(command)


def close_watch(connection: Connection, command: CommandWatchTopicListClose, entry: memoryview) -> None:
    """End a watch."""
    end = connection.watchers.pop(command.watcher_id, None)
    if end is not None:
        end()
    connection.answer(success(command.request_id))
