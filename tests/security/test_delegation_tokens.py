"""Delegation tokens: workers log in with one by SCRAM, as its owner, until it ends; and with it make no others."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from magnetar.admin.client import ask
from magnetar.auth.delegation_tokens import MAX_RENEWERS, DelegationTokens
from magnetar.auth.errors import TokenExpired, TokenNotFound
from magnetar.metadata import MemoryStore
from magnetar.metadata.cache import MetadataCache
from magnetar.settings.security import SecuritySettings
from magnetar.wire.kafka.errors import ErrorCode
from magnetar.wire.kafka.messages.create_acls_request import AclCreation, CreateAclsRequest
from magnetar.wire.kafka.messages.create_delegation_token_request import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from magnetar.wire.kafka.messages.describe_delegation_token_request import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from magnetar.wire.kafka.messages.expire_delegation_token_request import ExpireDelegationTokenRequest
from magnetar.wire.kafka.messages.metadata_request import MetadataRequest
from magnetar.wire.kafka.messages.renew_delegation_token_request import RenewDelegationTokenRequest
from magnetar.wire.kafka.messages.sasl_authenticate_request import SaslAuthenticateRequest
from magnetar.wire.kafka.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.hostile.client import Wire, frame, request_bytes
from tests.process import BrokerProcess
from tests.security.conftest import say
from tests.security.signing import IN_KAFKAS_WORDS, token
from tests.turns import until

SECRET = "a secret of all brokers"


def started(data: Path, *more: str) -> BrokerProcess:
    texts = (*IN_KAFKAS_WORDS, "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512", *more)
    return BrokerProcess(data, *[part for text in texts for part in ("--set", text)], kafka=None)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    secret = f"delegation.token.secret.key={SECRET}"
    with started(tmp_path_factory.mktemp("tokens") / "data", secret) as process:
        yield process
        assert not [line for line in process.log_lines() if "Traceback" in line]
        assert SECRET not in process.log.read_text()


@pytest.fixture
def as_role(house: BrokerProcess) -> Iterator[Callable[[str], Wire]]:
    opened: list[Wire] = []

    def connect(role: str) -> Wire:
        opened.append(Wire(house.host_and_port))
        assert say(opened[-1], f"token:{token(role)}").error_code == 0  # type: ignore[attr-defined]
        return opened[-1]

    yield connect
    for wire in opened:
        wire.close()


def log_in(
    wire: Wire, token_id: str, password: str, mechanism: str = "SCRAM-SHA-256", more: str = ",tokenauth=true"
) -> Any:
    """Speak SCRAM as Java's client does with a token; give the last answer."""
    digest = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
    assert wire.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    bare = f"n={token_id},r=abc{more}"
    said = wire.ask(SaslAuthenticateRequest(auth_bytes=f"n,,{bare}".encode()), 2)
    if said.error_code:
        return said
    challenge = bytes(said.auth_bytes).decode()
    told = dict(part.split("=", 1) for part in challenge.split(","))
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), base64.b64decode(told["s"]), int(told["i"]))
    last = f"c=biws,r={told['r']}"
    message = f"{bare},{challenge},{last}".encode()
    key = hmac.digest(salted, b"Client Key", digest)
    signature = hmac.digest(hashlib.new(digest, key).digest(), message, digest)
    proof = base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    return wire.ask(SaslAuthenticateRequest(auth_bytes=f"{last},p={proof}".encode()), 2)


def password_of(made: Any) -> str:
    return base64.b64encode(bytes(made.hmac)).decode()


def described(wire: Wire, *owners: str) -> list[Any]:
    wanted = [DescribeDelegationTokenOwner(principal_type="User", principal_name=each) for each in owners]
    told = wire.ask(DescribeDelegationTokenRequest(owners=wanted or None))
    assert told.error_code == 0
    return list(told.tokens)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_worker_is_who_gave_it_the_token(
    house: BrokerProcess, as_role: Callable[[str], Wire], mechanism: str
) -> None:
    made = as_role("alice").ask(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    assert made.error_code == 0
    assert (made.principal_name, made.token_requester_principal_name) == ("alice", "alice")
    assert made.max_timestamp_ms - made.issue_timestamp_ms == 604_800_000
    assert made.expiry_timestamp_ms - made.issue_timestamp_ms == 86_400_000
    ask(house.data, "grant", target="public/default", role="alice", actions=["produce"])
    with Wire(house.host_and_port) as wire:
        answer = log_in(wire, made.token_id, password_of(made), mechanism)
        assert answer.error_code == 0
        assert 86_000_000 < answer.session_lifetime_ms <= 86_400_000
        assert wire.ask(MetadataRequest(topics=[], include_cluster_authorized_operations=True), 8).brokers
        for request in (
            CreateDelegationTokenRequest(max_lifetime_ms=-1),
            RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=-1),
            ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1),
            DescribeDelegationTokenRequest(owners=None),
        ):
            assert wire.ask(request).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_what_is_no_tokens_password_lets_nobody_in(
    house: BrokerProcess, as_role: Callable[[str], Wire]
) -> None:
    made = as_role("alice").ask(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    good = password_of(made)
    for token_id, password, more in (
        (made.token_id, "x", ",tokenauth=true"),
        (made.token_id, good, ""),
        ("unknown", good, ",tokenauth=true"),
        ("alice", good, ",tokenauth=true"),
        ("../scram/secret", good, ",tokenauth=true"),
    ):
        with Wire(house.host_and_port) as wire:
            answer = log_in(wire, token_id, password, more=more)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert wire.is_closed()


def test_a_session_ends_with_its_token_and_renewing_goes_to_the_longest(
    house: BrokerProcess, as_role: Callable[[str], Wire]
) -> None:
    alice = as_role("alice")
    made = alice.ask(CreateDelegationTokenRequest(max_lifetime_ms=1500))
    assert made.expiry_timestamp_ms == made.max_timestamp_ms == made.issue_timestamp_ms + 1500
    told = alice.ask(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=60_000))
    assert told.expiry_timestamp_ms == made.max_timestamp_ms
    with Wire(house.host_and_port) as wire:
        assert 0 < log_in(wire, made.token_id, password_of(made)).session_lifetime_ms <= 1500
        time.sleep(1.6)
        wire.send(frame(request_bytes(MetadataRequest(topics=[]), 4)))
        assert wire.is_closed()
    with Wire(house.host_and_port) as wire:
        assert (
            log_in(wire, made.token_id, password_of(made)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        )
    assert made.token_id not in {each.token_id for each in described(alice)}
    gone = alice.ask(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=60_000))
    assert gone.error_code == ErrorCode.DELEGATION_TOKEN_EXPIRED


def test_owners_and_renewers_renew_and_end_and_nobody_else(
    house: BrokerProcess, as_role: Callable[[str], Wire]
) -> None:
    alice, bob, carl = as_role("alice"), as_role("bob"), as_role("carl")
    renewers = [CreatableRenewers(principal_type="User", principal_name="bob")]
    made = alice.ask(CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1))
    renewal = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=3_600_000)
    ending = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=-1)
    assert bob.ask(renewal).error_code == 0
    assert [each.token_id for each in described(bob, "alice")].count(made.token_id) == 1
    assert described(carl) == []
    assert described(bob, "bob") == []
    for request in (renewal, ending):
        assert carl.ask(request).error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        forged = type(request)(hmac=b"x" * 64)
        assert alice.ask(forged).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    soon = alice.ask(ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=60_000))
    assert soon.expiry_timestamp_ms <= time.time() * 1000 + 60_000
    assert bob.ask(ending).error_code == 0
    assert alice.ask(renewal).error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    with Wire(house.host_and_port) as wire:
        assert (
            log_in(wire, made.token_id, password_of(made)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        )


def test_renewers_have_a_bound(house: BrokerProcess, as_role: Callable[[str], Wire]) -> None:
    alice, fred = as_role("alice"), as_role("fred")
    for count, code in ((MAX_RENEWERS, ErrorCode.NONE), (MAX_RENEWERS + 1, ErrorCode.INVALID_REQUEST)):
        renewers = [
            CreatableRenewers(principal_type="User", principal_name=f"u{n}") for n in range(count)
        ] * 2  # a name counts once
        made = alice.ask(CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=60_000))
        assert made.error_code == code
        ended = fred.ask(RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=1))
        assert ended.error_code != 0


def test_in_anothers_name_and_to_see_others_wants_acls(
    house: BrokerProcess, as_role: Callable[[str], Wire]
) -> None:
    dan, root = as_role("dan"), as_role("root")
    wanted = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="eva", max_lifetime_ms=-1
    )
    assert dan.ask(wanted).error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    creation = AclCreation(
        resource_type=7,
        resource_name="User:eva",
        resource_pattern_type=3,
        principal="User:dan",
        host="*",
        operation=13,
        permission_type=3,
    )
    assert not root.ask(CreateAclsRequest(creations=[creation])).results[0].error_code
    made = dan.ask(wanted)
    assert (made.principal_name, made.token_requester_principal_name) == ("eva", "dan")
    assert made.token_id in {each.token_id for each in described(dan)}
    fay = as_role("fay")
    assert described(fay) == []
    creation.principal, creation.operation = "User:fay", 14
    assert not root.ask(CreateAclsRequest(creations=[creation])).results[0].error_code
    assert [each.principal_name for each in described(fay)] == ["eva"]
    assert made.token_id in {each.token_id for each in described(root)}
    bad = CreateDelegationTokenRequest(
        owner_principal_type="Group", owner_principal_name="eva", max_lifetime_ms=-1
    )
    assert root.ask(bad).error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


def test_without_a_secret_there_are_none(tmp_path: Path) -> None:
    with started(tmp_path / "data") as process, Wire(process.host_and_port) as wire:
        assert say(wire, f"token:{token('alice')}").error_code == 0  # type: ignore[attr-defined]
        for request in (
            CreateDelegationTokenRequest(max_lifetime_ms=-1),
            DescribeDelegationTokenRequest(owners=None),
            RenewDelegationTokenRequest(hmac=b"x"),
        ):
            assert wire.ask(request).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_tokens_are_there_after_a_crash_and_of_no_use_with_another_secret(tmp_path: Path) -> None:
    secret = "delegation.token.secret.key="
    with started(tmp_path / "data", secret + "one") as process, Wire(process.host_and_port) as wire:
        assert say(wire, f"token:{token('alice')}").error_code == 0  # type: ignore[attr-defined]
        made = wire.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1))
        process.kill()
    for other, code in (("one", 0), ("two", ErrorCode.SASL_AUTHENTICATION_FAILED)):
        with started(tmp_path / "data", secret + other) as process, Wire(process.host_and_port) as wire:
            assert log_in(wire, made.token_id, password_of(made)).error_code == code


async def test_what_has_ended_is_forgotten_everywhere() -> None:
    store, settings = MemoryStore(), SecuritySettings(delegation_token_secret_key="s")
    caches = MetadataCache(store), MetadataCache(store)
    one, other = (DelegationTokens(settings, cache) for cache in caches)
    await caches[0].follow(one)
    await caches[1].follow(other)
    first = await one.create("a", "a", [], 1000, 0)
    second = await one.create("a", "a", [], 5000, 0)
    await until(lambda: len(other.all(0)) == 2)
    assert other.by_id(first.id, 999) == first
    assert other.by_id(first.id, 1000) is None
    with pytest.raises(TokenExpired):
        await other.renew(one.proof(first), "a", 1, 1000)
    await one.tidy(1000)
    await until(lambda: other.all(0) == [second])
    with pytest.raises(TokenNotFound):
        await other.renew(one.proof(first), "a", 1, 1000)


def test_by_another_token_of_its_owner_a_worker_is_the_same(
    house: BrokerProcess, as_role: Callable[[str], Wire]
) -> None:
    """It may authenticate again so (KIP-368), and not as anybody else."""
    first, second = (
        as_role("alice").ask(CreateDelegationTokenRequest(max_lifetime_ms=60_000)) for _ in range(2)
    )
    of_bob = as_role("bob").ask(CreateDelegationTokenRequest(max_lifetime_ms=60_000))
    with Wire(house.host_and_port) as wire:
        for made in (first, second):
            assert log_in(wire, made.token_id, password_of(made)).error_code == 0
        assert wire.ask(MetadataRequest(topics=[]), 8).brokers
        refused = log_in(wire, of_bob.token_id, password_of(of_bob))
        assert refused.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert wire.is_closed()


async def test_a_renewed_token_lives_on_at_every_broker() -> None:
    store, settings = MemoryStore(), SecuritySettings(delegation_token_secret_key="s")
    caches = MetadataCache(store), MetadataCache(store)
    one, other = (DelegationTokens(settings, cache) for cache in caches)
    await caches[0].follow(one)
    await caches[1].follow(other)
    made = await one.create("a", "a", [], 100_000, 0)
    assert await one.expire(one.proof(made), "a", 500, 0) == 500
    await until(lambda: [each.expires_ms for each in other.all(0)] == [500])
    assert await other.renew(other.proof(made), "a", 1000, 100) == 1100
    await until(lambda: one.by_id(made.id, 600) is not None)
    renewed = one.by_id(made.id, 600)
    assert renewed is not None
    assert renewed.expires_ms == 1100
    assert one.by_id(made.id, 1100) is None
