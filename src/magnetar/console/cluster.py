"""The whole broker, for super users: brokers and bundles, transactions, clients, and who may do what."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from magnetar.admin.permissions import LivePermissions
from magnetar.auth import Right
from magnetar.base.slices import sliced
from magnetar.console.page import (
    Command,
    ConsolePage,
    Facts,
    check_right,
    kafka_tool,
    magnetar,
    pulsar_admin,
    whole,
)
from magnetar.coordination.refused import CoordinatorRefused
from magnetar.figures.figures import FigureTable
from magnetar.kafka.figures import KafkaFigures
from magnetar.kafka.server import KafkaServer
from magnetar.kafka.services import KafkaServices
from magnetar.kafka.transactions.metadata import IDLE, NO_TIME, TransactionMetadata
from magnetar.pulsar.rest.request import AdminRequest, RestError

PER_PAGE = 100
_MOST = 500
_LABEL = re.compile(r'([A-Za-z_]+)="((?:[^"\\]|\\.)*)"')


async def cluster_facts(ask: AdminRequest) -> Facts:
    """Return the brokers that live, the namespaces with their bundles, and bookies."""
    check_right(ask, Right.operate)
    broker = ask.services.broker
    ownership = broker.cluster.ownership
    namespaces = []
    async for name in sliced(sorted(broker.namespaces.names())):
        bundles = ownership.bundles(name)
        owners = Counter(
            owner.node_id for each in bundles[:_MOST] if (owner := ownership.owner_of(each)) is not None
        )
        namespaces.append(
            {
                "namespace": name,
                "bundles": len(bundles),
                "owners": {str(node): n for node, n in sorted(owners.items())},
            }
        )
    return {
        "cluster": ownership.cluster,
        "node": ownership.node_id,
        "leader": ownership.leader(),
        "brokers": [
            {
                "node": each.node_id,
                "rack": each.rack,
                "endpoints": {name: str(place) for name, place in each.endpoints.items()},
            }
            for each in ownership.brokers()
        ],
        "namespaces": namespaces[:_MOST],
        "bookies": await broker.engine.bookie_ids(),
        "load": dict(ownership.load),
    }


def cluster_commands(ask: AdminRequest, told: Facts) -> list[Command]:
    """Return what says the same on a command line."""
    return [
        magnetar("health"),
        kafka_tool(ask, "kafka-cluster", "list-endpoints"),
        pulsar_admin(ask, "brokers", "list", told["cluster"]),
    ]


async def transactions_facts(ask: AdminRequest) -> Facts:
    """Return the transactional ids of this broker, open ones first, by age. Query: ``q``, ``page``."""
    check_right(ask, Right.operate)
    services = ask.services.broker.offers.find(KafkaServices)
    made = None if services is None else services.transactions.made
    try:
        found = [] if made is None else made.list()
    except CoordinatorRefused as refused:
        raise RestError(503, str(refused)) from None
    wanted = ask.query.get("q", "").lower()
    rows = [each for each in found if wanted in each.transactional_id.lower()]
    rows.sort(key=lambda each: (not _is_open(each), each.start_ms, each.transactional_id))
    pages = max((len(rows) + PER_PAGE - 1) // PER_PAGE, 1)
    page = whole(ask, "page", 1, 1, pages)
    now_ms = ask.services.clock()
    return {
        "transactions": [
            {
                "id": each.transactional_id,
                "producer_id": each.producer_id,
                "epoch": each.epoch,
                "state": each.state.kafka_name,
                "timeout_ms": each.timeout_ms,
                "open_s": max(now_ms - each.start_ms, 0) / 1000 if _is_open(each) else None,
                "partitions": [f"{topic}-{index}" for topic, index in sorted(each.partitions)[:20]],
                "partition_count": len(each.partitions),
            }
            for each in rows[(page - 1) * PER_PAGE : page * PER_PAGE]
        ],
        "found": len(rows),
        "page": page,
        "pages": pages,
    }


def _is_open(transaction: TransactionMetadata) -> bool:
    return transaction.start_ms != NO_TIME and transaction.state not in IDLE


def transactions_commands(ask: AdminRequest, told: Facts) -> list[Command]:
    """Return what says the same on a command line."""
    return [
        magnetar("txn", "list"),
        kafka_tool(ask, "kafka-transactions", "list"),
        pulsar_admin(ask, "transactions", "coordinators-list"),
    ]


async def clients_facts(ask: AdminRequest) -> Facts:
    """Return which software clients are, what they ask for, and which errors they were answered."""
    check_right(ask, Right.operate)
    broker = ask.services.broker
    services, server = broker.offers.find(KafkaServices), broker.offers.find(KafkaServer)
    tables: list[FigureTable] = []
    if services is not None and server is not None:
        figures = KafkaFigures(services, server, None)
        async for table in sliced(figures.of_connections()):
            tables += [] if table is None else [table]
        async for table in sliced(figures.of_requests()):
            tables += [] if table is None else [table]
    versions: Counter[str] = Counter()
    async for topic in sliced(ask.services.topics.all_open()):
        sinks: dict[int, Any] = {id(each.sink): each.sink for each in topic.producers.by_name.values()}
        for subscription in topic.subscriptions.values():
            sinks |= {id(each.sink): each.sink for each in subscription.consumers}
        versions.update(each.client_version or "unknown" for each in sinks.values())
    return {
        "software": _rows(tables, "kafka_server_socket_server_metrics_connections"),
        "listeners": _rows(tables, "kafka_server_socket_server_metrics_connection_count"),
        "requests": _rows(tables, "kafka_network_requestmetrics_requests_total")[:_MOST],
        "errors": _rows(tables, "kafka_network_requestmetrics_errors_total")[:_MOST],
        "pulsar": [{"version": version, "value": count} for version, count in versions.most_common(_MOST)],
    }


def _rows(tables: list[FigureTable], name: str) -> list[dict[str, Any]]:
    """Return the rows of one figure, the largest first: their labels and the value."""
    found: list[dict[str, Any]] = []
    for table in tables:
        if table.families[0].name == name:
            found += [dict(_LABEL.findall(row[0])) | {"value": row[1]} for row in table.rows]
    return sorted(found, key=lambda each: -each["value"])


def clients_commands(ask: AdminRequest, told: Facts) -> list[Command]:
    """Return what says the same on a command line."""
    url = ask.address.http or ask.address.https or "http://localhost:8080"
    return [
        ("curl", f"curl {url}/metrics"),
        pulsar_admin(ask, "broker-stats", "topics"),
    ]


async def permissions_facts(ask: AdminRequest) -> Facts:
    """Return who may do what to which resource, and by which grant. Query: ``q`` a part of a role or a resource."""
    check_right(ask, Right.operate)
    broker = ask.services.broker
    wanted = ask.query.get("q", "").lower()
    rows = [
        _grant(role, "everything", ("all",), "super user")
        for role in broker.settings.security.super_user_roles
    ]
    live = LivePermissions(broker)
    tenants: set[str] = set()
    async for namespace in sliced(sorted(broker.namespaces.names())):
        shown = live.show(namespace)
        tenant = namespace.partition("/")[0]
        if tenant not in tenants:
            tenants.add(tenant)
            rows += [_grant(role, tenant, ("all",), "tenant admin") for role in shown.admins]
        rows += [_grant(role, namespace, actions, "namespace grant") for role, actions in shown.roles.items()]
        for topic, grants in shown.topics.items():
            rows += [_grant(role, topic, actions, "topic grant") for role, actions in grants.items()]
        for name, roles in shown.subscriptions.items():
            rows += [
                _grant(role, f"{namespace}, subscription {name}", ("consume",), "subscription")
                for role in roles
            ]
    for acl in broker.security.policies.others():
        named = f"{acl.resource_type.name.lower()} {acl.resource_name}"
        kind = "Kafka ACL" if acl.pattern_type.name == "LITERAL" else "Kafka ACL, by prefix"
        allows = acl.permission.name == "ALLOW"
        row = _grant(acl.principal, named, (acl.operation.name.lower(),), kind)
        rows.append(row | {"allows": allows, "host": acl.host})
    found = [each for each in rows if wanted in each["role"].lower() or wanted in each["resource"].lower()]
    pages = max((len(found) + PER_PAGE - 1) // PER_PAGE, 1)
    page = whole(ask, "page", 1, 1, pages)
    return {
        "in_force": broker.security.authorization.enabled,
        "grants": found[(page - 1) * PER_PAGE : page * PER_PAGE],
        "found": len(found),
        "page": page,
        "pages": pages,
    }


def _grant(role: str, resource: str, actions: tuple[str, ...], why: str) -> dict[str, Any]:
    return {
        "role": role,
        "resource": resource,
        "actions": list(actions),
        "why": why,
        "allows": True,
        "host": "*",
    }


def permissions_commands(ask: AdminRequest, told: Facts) -> list[Command]:
    """Return what says the same on a command line."""
    return [
        magnetar("permission", "list"),
        kafka_tool(ask, "kafka-acls", "--list"),
        pulsar_admin(ask, "namespaces", "permissions", "public/default"),
    ]


TRANSACTIONS = ConsolePage("transactions", "Transactions", transactions_facts, transactions_commands)
CLIENTS = ConsolePage("clients", "Clients", clients_facts, clients_commands)
PERMISSIONS = ConsolePage("permissions", "Permissions", permissions_facts, permissions_commands)
CLUSTER = ConsolePage("cluster", "Cluster", cluster_facts, cluster_commands)
