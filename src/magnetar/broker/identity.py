"""Who this broker is: the cluster's id, its own number, and how often it was started."""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import dataclass

from magnetar.broker.namespaces import CLUSTER
from magnetar.metadata import BlockingStore

_CLUSTER_ID = "/magnetar/cluster-id"


@dataclass(frozen=True, slots=True)
class Identity:
    """``cluster_id`` is 22 characters, as Kafka's; ``epoch`` grows with every start."""

    cluster_id: str
    node_id: int
    epoch: int


def new_id() -> bytes:
    """Give 16 random bytes for a topic or a cluster. Kafka's tools take a leading dash in its text for an option."""
    while (made := uuid.uuid4().bytes) and base64.urlsafe_b64encode(made).startswith(b"-"):
        pass
    return made


def take_identity(store: BlockingStore, node_id: int) -> Identity:
    """Give the identity for a broker that starts now, and keep it."""
    with store.transaction():
        stored = store.get(_CLUSTER_ID)
        if stored is None:
            store.put(_CLUSTER_ID, base64.urlsafe_b64encode(new_id()).rstrip(b"="))
            store.put(
                f"/admin/clusters/{CLUSTER}", json.dumps({"serviceUrl": "", "brokerServiceUrl": ""}).encode()
            )
            stored = store.get(_CLUSTER_ID)
        assert stored is not None
        epoch = store.put(f"/magnetar/brokers/{node_id}/started", b"")
    return Identity(stored.value.decode(), node_id, epoch)
