"""The cluster, its brokers, and whether this one is well."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from magnetar import __version__
from magnetar.base.setting import Feed, SettingDef, plain
from magnetar.base.values import Kind
from magnetar.pulsar.rest.request import (
    Address,
    AdminRequest,
    Reply,
    RequiredLevel,
    RestError,
    RestRoute,
    address_of,
)
from magnetar.settings.cluster import ClusterSettings
from magnetar.web import common as web_common


async def clusters(ask: AdminRequest) -> list[str]:
    """List the clusters."""
    return [ask.services.broker.cluster.ownership.cluster]


async def cluster(ask: AdminRequest) -> dict[str, Any]:
    """Return where a cluster's brokers are."""
    _known(ask)
    address = ask.address
    return {
        "serviceUrl": address.http,
        "serviceUrlTls": address.https,
        "brokerServiceUrl": address.pulsar,
        "brokerServiceUrlTls": address.pulsar_tls,
        "brokerClientTlsEnabled": False,
        "peerClusterNames": None,
    }


async def change_cluster(ask: AdminRequest) -> None:
    """Refuse: there is one cluster, and it follows its brokers' settings."""
    name = ask.services.broker.cluster.ownership.cluster
    if ask.path["cluster"] == name:
        raise RestError(409, f"Cluster {name} already exists, and is what the broker's settings say")
    raise RestError(405, f"there is one cluster, {name}: geo-replication is not served")


async def no_policies(ask: AdminRequest) -> dict[str, Any]:
    """List a cluster's isolation policies or failure domains: there are none."""
    _known(ask)
    return {}


async def no_peers(ask: AdminRequest) -> list[str]:
    """List a cluster's peers: there are none."""
    _known(ask)
    return []


async def brokers(ask: AdminRequest) -> list[str]:
    """List the active brokers."""
    if "cluster" in ask.path:
        _known(ask)
    return [_address(ask, each.node_id).broker for each in ask.services.broker.cluster.ownership.brokers()]


async def leader(ask: AdminRequest) -> dict[str, str]:
    """Return the broker that leads the cluster."""
    address = _address(ask, ask.services.broker.cluster.ownership.leader())
    return {"brokerId": address.broker, "serviceUrl": address.http or address.https}


def _address(ask: AdminRequest, node_id: int) -> Address:
    return address_of(ask.services.broker.cluster.ownership, node_id, ask.address)


async def health(ask: AdminRequest) -> Reply:
    """Tell whether storage and metadata answer, and essential background work succeeds; 503 with what does not."""
    wrong = await ask.services.broker.troubles()
    if wrong:
        raise RestError(503, "; ".join(wrong))
    return Reply(b"ok", "text/plain")


async def health_in_words(ask: AdminRequest) -> Reply:
    """Do as `health`, and tell what is degraded: Pulsar's own tools take nothing but "ok" for health."""
    await health(ask)
    return _well(ask)


async def ready(ask: AdminRequest) -> Reply:
    """Tell whether everybody is served; 503 with what is still waited for."""
    waits_for = ask.services.broker.waits_for()
    if waits_for:
        raise RestError(503, "; ".join(waits_for))
    return _well(ask)


async def alive(ask: AdminRequest) -> Reply:
    """Tell whether a restart would help: 503 with why."""
    failed = ask.services.broker.engine.failed
    if failed is not None:
        raise RestError(503, str(failed))
    return Reply(b"ok", "text/plain")


def _well(ask: AdminRequest) -> Reply:
    return Reply(web_common.well(ask.services.broker).encode(), "text/plain")


async def status(ask: AdminRequest) -> Reply:
    """Tell load balancers that requests are served."""
    return Reply(b"OK", "text/plain")


async def version(ask: AdminRequest) -> Reply:
    """Return Magnetar's version."""
    return Reply(__version__.encode(), "text/plain")


async def runtime_configuration(ask: AdminRequest) -> dict[str, str]:
    """Return all settings as they are in force, by Pulsar's names, too, where those have the same unit.

    Secrets are left out.
    """
    settings = ask.services.broker.settings
    return {
        name: str(settings.value(field))
        for field, each in settings.declared.definitions.items()
        if each.kind is not Kind.PASSWORD
        for name in _same(each)
    }


async def dynamic_names(ask: AdminRequest) -> list[str]:
    """List the settings that may be changed while the broker runs, by Pulsar's names, too."""
    return sorted(feed.name for each in _definitions(ask) if each.dynamic for feed in _feeds(each))


async def dynamic_values(ask: AdminRequest) -> dict[str, str]:
    """Return the settings that were changed while the broker ran; see `runtime_configuration` for their names."""
    changed = ask.services.broker.authority.dynamic.default
    names = {each.name: _same(each) for each in _definitions(ask)}
    return {name: text for own, text in changed.items() for name in names.get(own, (own,))}


async def set_dynamic(ask: AdminRequest) -> None:
    """Change a setting while the broker runs."""
    name, convert = _setting(ask)
    text = convert(ask.path["value"])
    if text is None:  # by Pulsar's name it says the same as nothing
        await _unset(ask, name)
    else:
        await ask.services.broker.change_dynamic(lambda texts: texts | {name: text}, for_all=True)


async def unset_dynamic(ask: AdminRequest) -> None:
    """Take back what was changed while the broker ran."""
    await _unset(ask, _setting(ask)[0])


async def _unset(ask: AdminRequest, name: str) -> None:
    await ask.services.broker.change_dynamic(
        lambda texts: {each: text for each, text in texts.items() if each != name}, for_all=True
    )


async def internal_configuration(ask: AdminRequest) -> dict[str, Any]:
    """Return where the broker keeps metadata, and messages if bookies do."""
    settings = ask.services.broker.settings
    url = settings.node.metadata_url
    found = {"metadataStoreUrl": url, "configurationMetadataStoreUrl": url, "ledgersRootPath": "/ledgers"}
    if settings.node.storage_url.startswith("bookkeeper:"):
        bookies = settings.of(ClusterSettings).bookkeeper_metadata_url
        found["bookkeeperMetadataServiceUri"] = bookies or f"zk://{url.removeprefix('zk:')}/ledgers"
    return found


def _definitions(ask: AdminRequest) -> Iterable[SettingDef]:
    return ask.services.broker.settings.declared.definitions.values()


def _feeds(definition: SettingDef) -> tuple[Feed, ...]:
    """Return a setting's own name and Pulsar's."""
    return (Feed(definition.name), *definition.pulsar)


def _same(definition: SettingDef) -> list[str]:
    """Return the names by which its value is told as it is."""
    return [feed.name for feed in _feeds(definition) if feed.convert is str]


def _setting(ask: AdminRequest) -> tuple[str, Callable[[str], str | None]]:
    """Return the name of the setting that is meant, and what becomes of its text; an unknown one is as it is."""
    wanted = plain(ask.path["name"])
    for each in _definitions(ask):
        for feed in _feeds(each):
            if plain(feed.name) == wanted:
                return each.name, feed.convert
    return ask.path["name"], str


def _known(ask: AdminRequest) -> None:
    if ask.path["cluster"] != ask.services.broker.cluster.ownership.cluster:
        raise RestError(404, f"Cluster {ask.path['cluster']} does not exist")


_ANY, _SUPER, _OPEN = RequiredLevel.anybody, RequiredLevel.super_user, RequiredLevel.nobody
ROUTES = (
    RestRoute("GET", "//status.html", status, _OPEN),
    RestRoute("GET", "/clusters", clusters, _ANY),
    RestRoute("GET", "/clusters/{cluster}", cluster, _ANY),
    RestRoute("PUT", "/clusters/{cluster}", change_cluster, _SUPER),
    RestRoute("POST", "/clusters/{cluster}", change_cluster, _SUPER),
    RestRoute("DELETE", "/clusters/{cluster}", change_cluster, _SUPER),
    RestRoute("GET", "/clusters/{cluster}/peers", no_peers, _SUPER),
    RestRoute("GET", "/clusters/{cluster}/namespaceIsolationPolicies", no_policies, _SUPER),
    RestRoute("GET", "/clusters/{cluster}/failureDomains", no_policies, _SUPER),
    RestRoute("GET", "/brokers", brokers, _SUPER),
    RestRoute("GET", "/brokers/leaderBroker", leader, _SUPER),
    RestRoute("GET", "/brokers/health", health, _OPEN),
    RestRoute("GET", "//health", health_in_words, _OPEN),
    RestRoute("GET", "//healthz", health_in_words, _OPEN),
    RestRoute("GET", "//ready", ready, _OPEN),
    RestRoute("GET", "//readyz", ready, _OPEN),
    RestRoute("GET", "//livez", alive, _OPEN),
    RestRoute("GET", "/brokers/ready", health, _OPEN),
    RestRoute("GET", "/brokers/version", version, _ANY),
    RestRoute("GET", "/brokers/configuration", dynamic_names, _SUPER),
    RestRoute("GET", "/brokers/configuration/runtime", runtime_configuration, _SUPER),
    RestRoute("GET", "/brokers/configuration/values", dynamic_values, _SUPER),
    RestRoute("POST", "/brokers/configuration/{name}/{value:path}", set_dynamic, _SUPER),
    RestRoute("DELETE", "/brokers/configuration/{name}", unset_dynamic, _SUPER),
    RestRoute("GET", "/brokers/internal-configuration", internal_configuration, _SUPER),
    RestRoute("GET", "/brokers/{cluster}", brokers, _SUPER),
)
