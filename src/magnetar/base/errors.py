"""What the broker core may say instead of an answer. Protocols translate these once."""

from __future__ import annotations


class BrokerError(Exception):
    """The root of all that this package raises."""


class InvalidTopic(BrokerError):
    """The name cannot be a topic's."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"Topic name is invalid: {why}")
        self.name = name


class TopicNotFound(BrokerError):
    """No topic has this name or id."""


class TopicExists(BrokerError):
    """The name is taken."""


class NamespaceNotFound(BrokerError):
    """The tenant or the namespace of a topic does not exist, and settings do not allow creating it."""


class TooManyTopics(BrokerError):
    """The namespace may not have so many (``maxTopicsPerNamespace``)."""


class InvalidPartitions(BrokerError):
    """A number of partitions that cannot be: not positive, over the limit, or not more than there are."""


class TooManyPartitions(InvalidPartitions):
    """More partitions than one request may make, over all its topics."""

    def __init__(self) -> None:
        super().__init__("Excessively large number of partitions per request.")


class InvalidConfig(BrokerError):
    """A setting or a topic's configuration has a value that it cannot have, or a name that nobody knows."""


class NotDynamic(InvalidConfig):
    """The setting cannot change while the broker runs."""


class InvalidPolicy(BrokerError):
    """A namespace's policies are not what they should be."""


class ServedElsewhere(BrokerError):
    """Another broker serves what was asked for: an answer to the client, and no defect of this broker."""


class HandlerError(BrokerError):
    """A protocol handler cannot be found, loaded or started."""


class InvalidQuota(BrokerError):
    """An entity that cannot have quotas, or a quota that it cannot have."""
