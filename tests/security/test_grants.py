"""Who may do what: Pulsar's rules, in Pulsar's JSON, changed while somebody asks."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from magnetar.auth import Right
from magnetar.auth.security import Security
from magnetar.base.errors import InvalidPolicy, NamespaceNotFound
from magnetar.kafka.authorization.checks import Checks
from magnetar.metadata import MemoryStore
from magnetar.metadata.cache import MetadataCache
from magnetar.settings.settings import Settings
from magnetar.topics.names import Naming, TopicName
from magnetar.topics.namespaces import POLICIES, Namespaces
from tests.security.signing import SECRET_URL

NAMESPACE = "public/default"
ORDERS = TopicName("public", "default", "orders")
PAYMENTS = TopicName("public", "default", "payments")


class House:
    """Namespaces with their security, on a store that outlives them."""

    def __init__(self, store: MemoryStore | None = None, **settings: str) -> None:
        self.store = store or MemoryStore()
        self.cache = MetadataCache(self.store)
        self.namespaces = Namespaces(self.cache)
        texts = {"authorization.enabled": "true", "super.user.roles": "root", "token.secret.key": SECRET_URL}
        given = {name.replace("_", "."): text for name, text in settings.items()}
        loaded = Settings().with_values({"authentication.enabled": "true"} | texts | given)
        self.security = Security(loaded.security, self.namespaces, self.cache, Naming(), loaded.given)
        self.permissions = self.security.permissions

    async def ready(self) -> House:
        await self.cache.follow(self.namespaces)
        await self.namespaces.create(NAMESPACE)
        return self

    def may(self, role: str, topic: TopicName = ORDERS, subscription: str | None = None) -> str:
        """Return p for produce, c for consume and l for look-up, of those that are allowed."""
        access = self.security.authorization.access(role)
        assert access is not None
        allowed = (access.produces(topic), access.consumes(topic, subscription), access.looks_up(topic))
        return "".join(letter for letter, yes in zip("pcl", allowed, strict=True) if yes)


async def test_nobody_may_anything_until_it_is_granted() -> None:
    house = await House().ready()
    assert (house.may("alice"), house.may("root")) == ("", "pcl")
    await house.permissions.grant(NAMESPACE, "alice", ["produce"])
    assert (house.may("alice"), house.may("alice", PAYMENTS), house.may("bob")) == ("pl", "pl", "")
    await house.permissions.grant(NAMESPACE, "alice", ["consume"])
    assert house.may("alice") == "cl", "a grant says exactly what a role may do"
    assert await house.permissions.revoke(NAMESPACE, "alice")
    assert not await house.permissions.revoke(NAMESPACE, "alice")
    assert house.may("alice") == ""


async def test_a_grant_on_one_topic_is_for_that_topic() -> None:
    house = await House().ready()
    await house.permissions.grant(NAMESPACE, "alice", ["consume"], ORDERS)
    assert (house.may("alice"), house.may("alice", PAYMENTS)) == ("cl", "")
    await house.permissions.grant(NAMESPACE, "alice", ["produce"])
    assert (house.may("alice"), house.may("alice", PAYMENTS)) == ("pcl", "pl")
    assert house.permissions.of_topic(ORDERS)["alice"] == {"produce", "consume"}
    await house.permissions.revoke(NAMESPACE, "alice", ORDERS)
    assert house.may("alice") == "pl"


async def test_what_somebody_was_granted_is_everybodys_no_more() -> None:
    """With allow.everyone.if.no.acl.found; as if a grant were an ACL."""
    house = await House(allow_everyone_if_no_acl_found="true").ready()
    assert (house.may("bob"), house.may("bob", PAYMENTS)) == ("pcl", "pcl")
    await house.permissions.grant(NAMESPACE, "alice", ["consume"], ORDERS)
    assert (house.may("alice"), house.may("bob"), house.may("bob", PAYMENTS)) == ("cl", "", "pcl")
    await house.permissions.revoke(NAMESPACE, "alice", ORDERS)
    assert house.may("bob") == "pcl"
    await house.permissions.grant(NAMESPACE, "alice", ["consume"])
    assert (house.may("alice"), house.may("bob"), house.may("bob", PAYMENTS)) == ("cl", "", "")


async def test_a_tenants_admins_may_everything_in_it_and_nothing_beside() -> None:
    house = await House().ready()
    await house.permissions.set_tenant_admins("public", ["chief"])
    elsewhere = TopicName("other", "ns", "t")
    assert (house.may("chief"), house.may("chief", elsewhere)) == ("pcl", "")
    await house.permissions.set_tenant_admins("public", [])
    assert house.may("chief") == ""


async def test_a_named_subscription_is_for_its_roles() -> None:
    house = await House().ready()
    for role in ("alice", "bob"):
        await house.permissions.grant(NAMESPACE, role, ["consume"])
    assert (house.may("alice", subscription="s"), house.may("bob", subscription="s")) == ("cl", "cl")
    await house.permissions.grant_subscription(NAMESPACE, "s", ["alice"])
    assert house.may("alice", subscription="s") == "cl"
    access = house.security.authorization.access("bob")
    assert access is not None
    assert not access.consumes(ORDERS, "s")
    assert access.consumes(ORDERS, "another")
    await house.permissions.revoke_subscription(NAMESPACE, "s", "alice")
    assert access.consumes(ORDERS, "s")


async def test_what_is_granted_survives_and_is_pulsars_json() -> None:
    house = await House().ready()
    await house.namespaces.set_policies(NAMESPACE, b'{"bundles": {"numBundles": 4}}')
    await house.permissions.grant(NAMESPACE, "alice", ["produce", "consume"], ORDERS)
    await house.permissions.grant(NAMESPACE, "bob", ["functions"])
    await house.permissions.grant_subscription(NAMESPACE, "s", ["alice"])
    await house.permissions.set_tenant_admins("public", ["chief"])
    stored = house.store.blocking.get(f"{POLICIES}/{NAMESPACE}")
    assert stored is not None
    assert json.loads(stored.value) == {
        "bundles": {"numBundles": 4},
        "auth_policies": {
            "namespace_auth": {"bob": ["functions"]},
            "destination_auth": {"persistent://public/default/orders": {"alice": ["consume", "produce"]}},
            "subscription_auth_roles": {"s": ["alice"]},
        },
    }
    again = await House(house.store).ready()
    assert (again.may("alice"), again.may("bob"), again.may("chief")) == ("pcl", "", "pcl")


async def test_policies_written_as_a_whole_count_at_once() -> None:
    house = await House().ready()
    assert house.may("alice") == ""
    policies = {"auth_policies": {"namespace_auth": {"alice": ["produce"]}}}
    await house.namespaces.set_policies(NAMESPACE, json.dumps(policies).encode())
    assert house.may("alice") == "pl"


@pytest.mark.parametrize("wildcards", ["true", "false"])
async def test_wildcards_count_only_where_they_are_allowed(wildcards: str) -> None:
    house = await House(authorization_allow_wildcards_matching=wildcards).ready()
    await house.permissions.grant(NAMESPACE, "team.*", ["produce"])
    await house.permissions.grant(NAMESPACE, "*.reader", ["consume"])
    found = [house.may(role) for role in ("team.a", "x.reader", "team.reader", "other", "team.*")]
    assert found == (["pl", "cl", "pcl", "", "pl"] if wildcards == "true" else ["", "", "", "", "pl"])


async def test_wrong_grants_are_refused_and_change_nothing() -> None:
    house = await House().ready()
    with pytest.raises(InvalidPolicy, match="'write' is no action: one of produce, consume"):
        await house.permissions.grant(NAMESPACE, "alice", ["produce", "write"])
    with pytest.raises(InvalidPolicy, match="at least one action"):
        await house.permissions.grant(NAMESPACE, "alice", [])
    with pytest.raises(NamespaceNotFound):
        await house.permissions.grant("no/where", "alice", ["produce"])
    for broken in ({"namespace_auth": {"alice": ["write"]}}, {"namespace_auth": 3}, []):
        with pytest.raises(InvalidPolicy):
            await house.namespaces.set_policies(
                NAMESPACE, json.dumps({"auth_policies": broken or [1]}).encode()
            )
    assert house.may("alice") == ""


async def test_without_authorization_nobody_is_asked() -> None:
    house = await House(authorization_enabled="false").ready()
    assert house.security.authorization.access("alice") is None
    assert house.security.authorization.may("alice", Right.produce, ORDERS)


async def test_authorization_alone_knows_nobody_but_anonymous() -> None:
    house = await House(authentication_enabled="false").ready()
    who = house.security.authentication.anonymous().role
    assert who == "ANONYMOUS"
    access = house.security.authorization.access(who)
    assert access is not None
    assert not access.produces(ORDERS)
    await house.permissions.grant("public/default", who, ["produce"])
    assert access.produces(ORDERS)


async def test_with_tenants_what_may_be_consumed_elsewhere_opens_no_group() -> None:
    """Nor for who comes by a certificate, and so says nothing of a home: it is at home where everybody is."""
    house = await House().ready()
    await house.namespaces.create("blue/default")
    await house.permissions.grant("blue/default", "bob", ["consume"])
    access = house.security.authorization.access("bob")
    assert access is not None

    def uses(home: str, tenancy: object) -> bool:
        kafka = SimpleNamespace(
            broker=SimpleNamespace(naming=Naming()), home=home, by_tenant=tenancy is not None
        )
        return Checks(access, SimpleNamespace(kafka=kafka)).uses("g")  # type: ignore[arg-type]

    assert [uses(home, object()) for home in ("", "public/default", "red/default", "blue/default")] == [
        False,
        False,
        False,
        True,
    ]
    assert uses("", None), "without tenants groups are everybody's who may consume anything"


async def test_every_connection_hears_of_a_changed_grant_however_many_roles_there_are() -> None:
    house = await House().ready()
    await house.permissions.grant(NAMESPACE, "alice", ["consume"])
    access = house.security.authorization.access("alice")
    assert access is not None
    assert access.may(Right.consume, ORDERS)
    others = [house.security.authorization.access(f"role-{number}") for number in range(20_000)]
    await house.permissions.revoke(NAMESPACE, "alice")
    assert not access.may(Right.consume, ORDERS)
    assert len(others) == 20_000
