"""What a broker does with the list of a restored topic's ledgers: it reserves their ids, and adopts them."""

from __future__ import annotations

from magnetar.admin.errors import Declined
from magnetar.admin.manifest import Adopted, Manifest, Reserved
from magnetar.base.errors import BrokerError
from magnetar.ledger.errors import LedgerError
from magnetar.node.adoption import adopt, reserve
from magnetar.node.broker import Broker
from magnetar.topics.new_topic import NewTopic


async def reserve_for(broker: Broker, manifest: Manifest) -> Reserved:
    """Reserve the ids; raise `Declined` if there could be no such topic."""
    try:
        return Reserved(await reserve(broker, _new(broker, manifest), manifest.ledgers))
    except (BrokerError, LedgerError) as error:
        raise _declined(error) from error


async def adopt_all(broker: Broker, manifest: Manifest) -> Adopted:
    """Make the topic; raise `Declined`."""
    try:
        logs = {each.partition: each.ledgers for each in manifest.logs}
        topic = await adopt(broker, _new(broker, manifest), logs)
    except (BrokerError, LedgerError) as error:
        raise _declined(error) from error
    return Adopted(topic.kafka_name, topic.partitions)


def _new(broker: Broker, manifest: Manifest) -> NewTopic:
    return NewTopic(broker.naming.parse(manifest.topic), manifest.partitions, dict(manifest.configs))


def _declined(error: Exception) -> Declined:
    return Declined(str(error), "A topic is restored under a name that is free.")
