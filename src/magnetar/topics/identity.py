"""The identity of this broker: the cluster's id, its own number, and how often it was started."""

from __future__ import annotations

import base64
import json
import uuid
from contextlib import suppress
from dataclasses import dataclass

from magnetar.base.errors import InvalidConfig
from magnetar.ledger.tiers.objects import CLUSTER_ID
from magnetar.metadata import ANY, MUST_NOT_EXIST, BadVersion, MetadataStore, Put
from magnetar.topics.names import CLUSTER

CLUSTERS = "/admin/clusters"
_CLUSTER_ID = CLUSTER_ID


@dataclass(frozen=True, slots=True)
class Identity:
    """``cluster_id`` is 22 characters, as Kafka's; ``epoch`` grows with every start."""

    cluster_id: str
    node_id: int
    epoch: int


def new_id() -> bytes:
    """Return 16 random bytes for a topic or a cluster. Kafka's tools take a leading dash in its text for an option."""
    while (made := uuid.uuid4().bytes) and base64.urlsafe_b64encode(made).startswith(b"-"):
        pass
    return made


async def take_identity(store: MetadataStore, node_id: int, cluster: str = CLUSTER) -> Identity:
    """Return the identity for a broker of the cluster that starts now, and store it."""
    started = f"/magnetar/brokers/{node_id}/started"
    while (stored := await store.get(_CLUSTER_ID)) is None:
        with suppress(BadVersion):  # another one is the cluster's first broker
            await _begin_cluster(store, cluster)
    (epoch,) = await store.commit(
        [Put(started, b"", ANY)]
    )  # each start counts, whichever process wrote it last
    return Identity(stored.value.decode(), node_id, epoch)


async def _begin_cluster(store: MetadataStore, name: str) -> None:
    cluster = json.dumps({"serviceUrl": "", "brokerServiceUrl": ""}).encode()
    await store.commit(
        [
            Put(_CLUSTER_ID, base64.urlsafe_b64encode(new_id()).rstrip(b"="), MUST_NOT_EXIST),
            Put(f"{CLUSTERS}/{name}", cluster, ANY),
        ]
    )


async def check_cluster(store: MetadataStore, url: str, name: str) -> None:
    """Raise `InvalidConfig` if the metadata are another cluster's; claim them if they are no cluster's yet."""
    found = [each for each in await store.children(CLUSTERS) if each != "global"]
    if found and name not in found:
        raise InvalidConfig(
            f"{url} holds the metadata of cluster {', '.join(found)}, not of {name!r}: set clusterName to that, or"
            " another place in metadataStoreUrl"
        )
    if not found:
        await store.commit([Put(f"{CLUSTERS}/{name}", b"{}", ANY)])
