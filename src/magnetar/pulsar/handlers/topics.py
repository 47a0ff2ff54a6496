"""GET_TOPICS_OF_NAMESPACE and WATCH_TOPIC_LIST: which topics there are, and which come and go.

A pattern is the client's; see `magnetar.pulsar.patterns` for what that may cost, and `magnetar.pulsar.watches` for who
is told what. A client whose pattern is refused asks again now and then and filters the names itself.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from magnetar.pulsar.errors import NotAllowed, NotAuthorized
from magnetar.pulsar.names import PulsarName, TopicsHash
from magnetar.pulsar.patterns import Pattern, matching
from magnetar.pulsar.route import success
from magnetar.pulsar.settings import PulsarSettings
from magnetar.pulsar.watches import TopicListWatcher
from magnetar.topics.names import TopicName
from magnetar.wire.pulsar.pulsar_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandWatchTopicList,
    CommandWatchTopicListClose,
)

if TYPE_CHECKING:
    from magnetar.pulsar.connection import PulsarConnection

_MAX_WATCHERS = 1000
"""Of one connection."""


async def topics_of_namespace(
    connection: PulsarConnection, command: CommandGetTopicsOfNamespace, entry: memoryview
) -> None:
    """Answer with the names of a namespace's topics; of partitioned ones those of their partitions."""
    services = connection.services
    pattern = _filter(connection, command)
    seen: set[TopicName] = set()
    names: list[str] = []
    if command.mode != CommandGetTopicsOfNamespace.NON_PERSISTENT:
        async for topic, name in matching(services.broker.topics(), command.namespace, pattern):
            if topic.name in seen or _may_see(connection, topic.name):
                seen.add(topic.name)
                names.append(name)
    if command.mode != CommandGetTopicsOfNamespace.PERSISTENT:
        for name in services.topics.non_persistent.names(command.namespace):
            parsed = PulsarName.parse(name).topic
            if (pattern is None or pattern.matches(name)) and _may_see(connection, parsed):
                seen.add(parsed)
                names.append(name)
    _check_any(connection, command.namespace, bool(seen))
    answer = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE)
    response = answer.getTopicsOfNamespaceResponse
    response.request_id = command.request_id
    response.filtered = pattern is not None
    response.topics_hash = str(TopicsHash(names))
    response.changed = response.topics_hash != command.topics_hash
    if response.changed:
        response.topics.extend(names)
    connection.answer(answer)


def _filter(connection: PulsarConnection, command: CommandGetTopicsOfNamespace) -> Pattern | None:
    """Return the pattern that names are held against here; None where the client does it, as it always may."""
    settings = connection.services.broker.settings.of(PulsarSettings)
    if not command.topics_pattern or not settings.enable_broker_side_subscription_pattern_evaluation:
        return None
    try:
        return Pattern(command.topics_pattern, settings.subscription_pattern_max_length)
    except NotAllowed:
        return None


def _may_see(connection: PulsarConnection, topic: TopicName) -> bool:
    return connection.access is None or connection.access.looks_up(topic)


def _check_any(connection: PulsarConnection, namespace: str, sees_some: bool) -> None:
    """Raise ``NotAuthorized`` for a client that has nothing to do with a namespace, be there topics or not."""
    if connection.access is None or sees_some:
        return
    tenant, _, local = namespace.partition("/")
    # What is granted on the namespace holds for every name in it; no topic has this one, and so grants of its own.
    if not connection.access.looks_up(TopicName(tenant, local, "")):
        raise NotAuthorized.client("GetTopicsOfNamespace", namespace)


def watch_topic_list(
    connection: PulsarConnection, command: CommandWatchTopicList, entry: memoryview
) -> Coroutine[Any, Any, None]:
    """Return the topics that match a pattern now, and tell which come and go from here on."""
    settings = connection.services.broker.settings.of(PulsarSettings)
    try:
        if not settings.enable_broker_side_subscription_pattern_evaluation:
            raise NotAllowed("Evaluating subscription patterns is disabled.")
        pattern = Pattern(command.topics_pattern, settings.subscription_pattern_max_length)
    except NotAllowed as error:
        raise NotAllowed(f"Unable to create topic list watcher: {error}") from None
    if command.watcher_id not in connection.watchers and len(connection.watchers) >= _MAX_WATCHERS:
        raise NotAllowed(f"Unable to create topic list watcher: {_MAX_WATCHERS} of a connection may be")
    _end(connection, command.watcher_id)
    watch = TopicListWatcher(
        connection.services.watches,
        command.namespace,
        pattern,
        lambda topic: _may_see(connection, topic),
        Watcher(connection, command.watcher_id),
    )
    connection.watchers[command.watcher_id] = watch
    return _begin(connection, command, watch, pattern)


async def _begin(
    connection: PulsarConnection, command: CommandWatchTopicList, watch: TopicListWatcher, pattern: Pattern
) -> None:
    try:
        # What comes and goes meanwhile is noted by the watch.
        found = matching(connection.services.broker.topics(), command.namespace, pattern)
        names = {name async for topic, name in found if _may_see(connection, topic.name)}
        _check_any(connection, command.namespace, bool(names))
    except NotAuthorized:
        if connection.watchers.get(command.watcher_id) is watch:
            _end(connection, command.watcher_id)
        raise
    if watch.is_ended:  # closed, or replaced, before it began
        raise NotAllowed("Unable to create topic list watcher: it was closed before")
    answer = BaseCommand(type=BaseCommand.WATCH_TOPIC_LIST_SUCCESS)
    done = answer.watchTopicListSuccess
    done.request_id = command.request_id
    done.watcher_id = command.watcher_id
    watch.begin(names)
    done.topics_hash = str(watch.hash)
    if done.topics_hash != command.topics_hash:
        done.topic.extend(sorted(names))
    connection.answer(answer)


class Watcher:
    """The client end of a watch."""

    __slots__ = ("_connection", "_watcher_id")

    def __init__(self, connection: PulsarConnection, watcher_id: int) -> None:
        self._connection = connection
        self._watcher_id = watcher_id

    @property
    def is_writable(self) -> bool:
        return self._connection.is_writable

    def topics_changed(self, came: list[str], went: list[str], topics_hash: str) -> None:
        command = BaseCommand(type=BaseCommand.WATCH_TOPIC_UPDATE)
        update = command.watchTopicUpdate
        update.watcher_id = self._watcher_id
        update.new_topics.extend(came)
        update.deleted_topics.extend(went)
        update.topics_hash = topics_hash
        self._connection.answer(command)

    def fell_behind(self) -> None:
        self._connection.refuse("it watches topics and does not take what it is told")


def close_watch(connection: PulsarConnection, command: CommandWatchTopicListClose, entry: memoryview) -> None:
    """End a watch."""
    _end(connection, command.watcher_id)
    connection.answer(success(command.request_id))


def _end(connection: PulsarConnection, watcher_id: int) -> None:
    watch = connection.watchers.pop(watcher_id, None)
    if watch is not None:
        watch.end()
