"""Finding what a resource's name means, and changing its configurations as a whole."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.base.errors import InvalidConfig, TopicNotFound
from magnetar.base.values import render
from magnetar.kafka.configs.changes import InvalidChange, Known
from magnetar.kafka.configs.resource_types import ConfigResourceType
from magnetar.kafka.coordinators.configs import GroupConfigs, Own, broker_value
from magnetar.kafka.coordinators.configs import definition as group_definition
from magnetar.node.broker import Broker
from magnetar.topics.dynamic import dynamic_setting
from magnetar.topics.topic import Topic
from magnetar.topics.topic_config import definition


async def find_topic(broker: Broker, name: str) -> Topic:
    """Return the topic; raise `InvalidTopic` or `TopicNotFound`."""
    topic = await broker.known(name)
    if topic is None:
        broker.naming.parse(name)
    if topic is None or not broker.visible(topic):
        raise TopicNotFound(f"The topic '{name}' does not exist.")
    return topic


def check_broker_name(broker: Broker, name: str, *, or_all: bool = True) -> None:
    """Raise `InvalidChange` unless the name is this broker's number, or empty for all brokers."""
    if not name:
        if or_all:
            return
        raise InvalidChange("Broker id must not be empty")
    if not (name.isascii() and name.isdigit()):
        raise InvalidChange(f"Broker id must be an integer, but it is: {name}")
    node_id = broker.identity.node_id
    if int(name) != node_id:
        expected = f"{node_id} or empty string" if or_all else str(node_id)
        raise InvalidChange(f"Unexpected broker id, expected {expected}, but received {name}")


def check_group_name(name: str) -> None:
    """Raise `InvalidChange` unless a group can have that name."""
    if not name:
        raise InvalidChange("Default group resources are not allowed.")


async def alter(
    broker: Broker,
    groups: GroupConfigs,
    resource_type: int,
    name: str,
    change: Callable[[Own, Callable[[str], Known]], Own],
    *,
    by: str,
    validate_only: bool,
) -> None:
    """Set a topic's, a group's, this broker's or all brokers' own configurations to what ``change`` makes of them.

    ``change`` gets what is set now, and what is known of a configuration by its name; ``by`` is the role that asks,
    if any. Raises `InvalidConfig`.
    """
    if resource_type == ConfigResourceType.TOPIC:
        if not name:
            raise InvalidChange("Default topic resources are not allowed.")
        topic = await find_topic(broker, name)
        await broker.change_topic_config(
            topic.kafka_name,
            lambda topic: change(topic.overrides, lambda key: _known_of_topic(broker, topic, key)),
            validate_only=validate_only,
        )
    elif resource_type == ConfigResourceType.BROKER:
        check_broker_name(broker, name)
        refused: InvalidConfig | None = None

        def changed(own: Own) -> Own:
            nonlocal refused
            try:
                return change(own, lambda key: _known_of_broker(broker, key))
            except InvalidConfig as error:
                refused = error
                raise

        try:
            await broker.change_dynamic(changed, for_all=not name, validate_only=validate_only)
        except InvalidConfig as error:
            if error is refused:
                raise
            # Of topics Kafka says INVALID_CONFIG; of brokers it keeps to INVALID_REQUEST for its clients (KAFKA-13609).
            raise InvalidChange(str(error)) from error
    elif resource_type == ConfigResourceType.GROUP:
        check_group_name(name)
        await groups.change(
            name,
            lambda own: change(own, lambda key: _known_of_group(broker, own, key)),
            by=by,
            validate_only=validate_only,
        )
    else:
        raise InvalidChange(f"Unknown resource type {resource_type}")


def _known_of_topic(broker: Broker, topic: Topic, key: str) -> Known:
    config = definition(key)
    origins = broker.authority.topic_origins(config, topic, broker.topic_policies(topic))
    return Known(config.kind, origins[0].value)


def _known_of_group(broker: Broker, own: Own, key: str) -> Known:
    config = group_definition(key)
    value = own.get(key, render(broker_value(config, broker.settings)))
    return Known(config.kind, value)


def _known_of_broker(broker: Broker, key: str) -> Known:
    setting = dynamic_setting(broker.settings, key)
    return Known(setting.kind, broker.authority.setting_origins(setting)[0].value)
